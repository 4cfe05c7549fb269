CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    policy TEXT NOT NULL,
    version @int NOT NULL,
    created_ms @int NOT NULL,
    updated_ms @int NOT NULL,
    deleted_ms @int
) @strict;

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('gateway', 'user', 'gate')),
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    workspaces TEXT,
    created_ms @int NOT NULL,
    revoked_ms @int
) @strict;

CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    jwks TEXT NOT NULL,
    created_ms @int NOT NULL,
    signs_from_ms @int NOT NULL,
    grants_end_ms @int NOT NULL,
    revoked_ms @int
) @strict;

CREATE TABLE audit (
    id @row,
    at_ms @int NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    workspace TEXT,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) @strict;

CREATE INDEX audit_by_workspace ON audit (workspace, id);

CREATE TABLE usage_records (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    at_ms @int NOT NULL,
    day @int NOT NULL,
    workspace TEXT NOT NULL,
    grant_id TEXT NOT NULL,
    backend TEXT,
    session TEXT,
    tool TEXT,
    wall_ms @int,
    cpu_ms @int,
    memory_peak_bytes @int,
    stdout_bytes @int,
    stderr_bytes @int,
    outcome TEXT NOT NULL,
    status @int,
    gate TEXT NOT NULL,
    token TEXT NOT NULL,
    received_ms @int NOT NULL
) @strict;

CREATE INDEX usage_by_workspace ON usage_records (workspace, day);

CREATE INDEX usage_by_day ON usage_records (day);
