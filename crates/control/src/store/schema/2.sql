DROP INDEX usage_by_day;

CREATE INDEX usage_by_day ON usage_records (day, id);

CREATE TABLE usage_days (
    day @int NOT NULL,
    workspace TEXT NOT NULL,
    tool TEXT NOT NULL,
    leases @int NOT NULL,
    calls @int NOT NULL,
    ok @int NOT NULL,
    failed @int NOT NULL,
    not_run @int NOT NULL,
    uncertain @int NOT NULL,
    wall_ms @int NOT NULL,
    cpu_ms @int NOT NULL,
    memory_peak_bytes @int NOT NULL,
    stdout_bytes @int NOT NULL,
    stderr_bytes @int NOT NULL,
    PRIMARY KEY (day, workspace, tool)
) @strict;

CREATE TABLE usage_closed (
    before_day @int NOT NULL,
    late_records @int NOT NULL
) @strict;

INSERT INTO usage_closed (before_day, late_records) VALUES (0, 0);

CREATE INDEX audit_by_time ON audit (at_ms);
