//! Times of tasks as text (ISO 8601, UTC): `2026-11-24T08:58:15.000Z`. Texts of equal length sort as their times do.

/// Days from 0000-03-01 to 1970-01-01. Years begin in March here, so that a leap day is the last day of its year.
const DAYS_TO_1970: i64 = 719_468;
/// Number of days in 400 years, after which the calendar repeats.
const DAYS_OF_400_YEARS: i64 = 146_097;
const MS_OF_DAY: i64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z. A damaged record may contain any number, and the text has room for four digits.
const MAX_MS: i64 = 253_402_300_799_999;

/// Returns the text of a Unix time in ms. Times before 1970 and after 9999 are clamped.
pub fn to_text(ms: i64) -> String {
    let ms = ms.clamp(0, MAX_MS);
    let (days, of_day) = (ms / MS_OF_DAY + DAYS_TO_1970, ms % MS_OF_DAY);
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - days_before_year(year_of_era);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - days_before_month(month_from_march) + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month < 3);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", of_day % 1_000)
}

/// Parses a text that [`to_text`] wrote; `None` for any other text.
pub fn from_text(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (year, month) = (year - i64::from(month < 3), (month + 9) % 12);
    let days = year / 400 * DAYS_OF_400_YEARS + days_before_year(year % 400) + days_before_month(month) + day - 1;
    let of_day = number(11, 13)? * 3_600_000 + number(14, 16)? * 60_000 + number(17, 19)? * 1_000 + number(20, 23)?;
    let ms = (days - DAYS_TO_1970) * MS_OF_DAY + of_day;
    // The comparison also refuses other separators, signs, and dates that do not exist.
    (to_text(ms) == text).then_some(ms)
}

/// Returns the number of days from 1 March of the first of 400 years to 1 March of `year`, counted from 0.
fn days_before_year(year: i64) -> i64 {
    365 * year + year / 4 - year / 100
}

/// Returns the number of days from 1 March to the first day of the month `from_march`, where March is 0.
fn days_before_month(from_march: i64) -> i64 {
    (153 * from_march + 2) / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_and_read_as_text() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (1_795_510_695_042, "2026-11-24T08:58:15.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (MAX_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!((to_text(ms), from_text(text)), (text.to_owned(), Some(ms)));
        }
        assert_eq!([-1, i64::MAX].map(to_text), ["1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"]);
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "1795510695042",
            "2026-11-24",
            "2026-11-24 08:58:15.042Z",
            "2026-11-24T08:58:15Z",
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-11-24T24:00:00.000Z",
            "+026-11-24T08:58:15.042Z",
            "1969-12-31T23:59:59.999Z",
            "2026-11-24T08:58:15.042Z ",
            "2026-11-24T08:58:15.042é",
        ] {
            assert_eq!(from_text(text), None, "{text}");
        }
    }
}
