//! Days of the calendar, in UTC.

/// Milliseconds of a day.
pub(crate) const DAY_MS: u64 = 86_400_000;

/// The last millisecond of the year 9999.
pub(crate) const LAST_MS: u64 = 253_402_300_799_999;

/// The day of a POSIX time in milliseconds, counted from 1970-01-01.
pub(crate) fn day_of(at_ms: u64) -> u64 {
    at_ms / DAY_MS
}

/// `YYYY-MM-DD` of a day counted from 1970-01-01 (the algorithm is Hinnant's `civil_from_days`).
pub(crate) fn text(day: u64) -> String {
    let shifted = day.saturating_add(719_468);
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

/// The day of `YYYY-MM-DD`; `None` for whatever is no day from 1970 to 9999.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        let good = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        good.then(|| part.parse::<u64>().ok()).flatten()
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    // 31 of a short month comes back as another day.
    (self::text(days) == text).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_survive_their_text() {
        for (day, written) in
            [(0, "1970-01-01"), (19_782, "2024-02-29"), (20_833, "2027-01-15"), (11_016, "2000-02-29")]
        {
            assert_eq!((text(day).as_str(), parse(written)), (written, Some(day)));
        }
        for day in 0..40_000 {
            assert_eq!(parse(&text(day)), Some(day));
        }
        for wrong in ["", "2024", "2023-02-29", "2024-13-01", "2024-1-1", "1969-12-31", "2024-01-01-01", "+024-01-01"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(text(day_of(1_800_000_000_000)), "2027-01-15");
    }
}
