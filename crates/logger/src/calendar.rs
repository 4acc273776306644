//! Times as text, in UTC.
//!
//! Runs in: the logger. Sees: times that a client makes up. Never: reads a clock.

/// The last second that has a year of four digits; later times are shown as this one.
const SECOND_MAX: u64 = 253_402_300_799;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats times, and remembers the last second, since most records are of the same one.
#[derive(Debug, Default)]
pub struct Clock {
    second: Option<u64>,
    common: String,
    rfc3339: String,
}

impl Clock {
    /// As in the common log format: `21/Nov/2026:04:05:06 +0000`.
    pub fn common(&mut self, time_us: u64) -> &str {
        self.set(time_us);
        &self.common
    }

    /// As in RFC 3339, to the second and without the zone: `2026-11-21T04:05:06`.
    fn rfc3339(&mut self, time_us: u64) -> &str {
        self.set(time_us);
        &self.rfc3339
    }

    /// Appends a time as in RFC 3339, with milliseconds: `2026-11-21T04:05:06.789Z`.
    pub fn put_rfc3339(&mut self, out: &mut Vec<u8>, time_us: u64) {
        out.extend_from_slice(self.rfc3339(time_us).as_bytes());
        let ms = (time_us / 1000 % 1000) as u16;
        let digit = |place: u16| b'0' + (ms / place % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
    }

    fn set(&mut self, time_us: u64) {
        let second = (time_us / 1_000_000).min(SECOND_MAX);
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let (year, month, day) = date(second / 86_400);
        let (hour, minute, rest) = (second / 3600 % 24, second / 60 % 60, second % 60);
        let name = MONTHS[(month - 1) as usize];
        self.common = format!("{day:02}/{name}/{year:04}:{hour:02}:{minute:02}:{rest:02} +0000");
        self.rfc3339 = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{rest:02}");
    }
}

/// Year, month and day (from 1) of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are taken to begin in March, so that the leap day is a year's last, in eras of 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_leap_years() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(47_541), (2100, 3, 1));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..SECOND_MAX / 86_400 {
            let (year, month, day) = date(days);
            let follows = (year, month, day) == (before.0, before.1, before.2 + 1)
                || (year, month, day) == (before.0, before.1 + 1, 1)
                || (year, month, day) == (before.0 + 1, 1, 1);
            assert!(follows && (1..=12).contains(&month) && (1..=31).contains(&day));
            before = (year, month, day);
        }
    }

    #[test]
    fn formats_both_ways_and_any_time() {
        let mut clock = Clock::default();
        let time_us = 1_795_233_906_789_012;
        assert_eq!(clock.common(time_us), "21/Nov/2026:04:05:06 +0000");
        let mut out = Vec::new();
        clock.put_rfc3339(&mut out, time_us);
        assert_eq!(out, b"2026-11-21T04:05:06.789Z");
        assert_eq!(clock.common(u64::MAX), "31/Dec/9999:23:59:59 +0000");
    }
}
