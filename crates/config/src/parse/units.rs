//! Durations (`"1500ms"`), sizes (`"256MiB"`) and ranges of uids (`"51001-51999"`), both ways.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must
//! never: take a number without a unit, or round.

use std::ops::RangeInclusive;

use super::KeyFault;

type Units = [(&'static str, u64)];

const DURATIONS: &Units = &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

const SIZES: &Units = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

/// uids that belong to someone on every machine, with who that is.
const RESERVED: [(u32, &str); 3] = [
    (65534, "the user nobody"),
    (65535, "what -1 becomes in 16 bits"),
    (u32::MAX, "-1, which chown(2) and setresuid(2) take for \"leave as it is\""),
];

/// LIMIT: uids under 1000 belong to the system and its daemons; 0 is root.
const USER_MIN: u32 = 1000;

/// Milliseconds of a duration such as `10s`.
pub(crate) fn duration_ms(text: &str) -> Result<u64, KeyFault> {
    quantity(text, DURATIONS, "a duration", "10s")
}

/// Bytes of a size such as `64KiB`.
pub(crate) fn size_bytes(text: &str) -> Result<u64, KeyFault> {
    quantity(text, SIZES, "a size", "64KiB")
}

/// Bytes a second of a rate such as `500B/s`.
pub(crate) fn byte_rate(text: &str) -> Result<u64, KeyFault> {
    let Some(size) = text.strip_suffix("/s") else {
        let help = match size_bytes(text) {
            Ok(_) => format!("write `\"{text}/s\"`"),
            Err(_) => "write for example `\"500B/s\"`".to_owned(),
        };
        return Err(KeyFault::with_help("a rate is a size and `/s`, for a second", help));
    };
    quantity(size, SIZES, "a rate", "500B")
        .map_err(|fault| KeyFault { help: fault.help.map(|help| help.replace("\"`", "/s\"`")), ..fault })
}

/// Requests a second of a rate such as `100/s`.
pub(crate) fn request_rate(text: &str) -> Result<u64, KeyFault> {
    let rule = "a rate is a whole number of requests and `/s`, for a second";
    let number = text.strip_suffix("/s").filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| KeyFault::with_help(rule, "write for example `\"100/s\"`"))
}

/// A duration in its largest whole unit.
pub(crate) fn show_duration(ms: u64) -> String {
    show(ms, &["h", "m", "s", "ms"], DURATIONS)
}

/// A size in its largest whole binary unit.
pub(crate) fn show_size(bytes: u64) -> String {
    show(bytes, &["TiB", "GiB", "MiB", "KiB", "B"], SIZES)
}

/// A rate in its largest whole binary unit.
pub(crate) fn show_byte_rate(bytes: u64) -> String {
    show_size(bytes) + "/s"
}

fn show(value: u64, names: &[&str], units: &Units) -> String {
    let factor = |name: &str| units.iter().find(|unit| unit.0 == name).map_or(1, |unit| unit.1);
    let whole = |name: &&&str| value > 0 && value.is_multiple_of(factor(name));
    let name = names.iter().find(whole).or(names.last()).copied().unwrap_or("");
    format!("{}{name}", value / factor(name))
}

fn quantity(text: &str, units: &Units, what: &str, example: &str) -> Result<u64, KeyFault> {
    let names: Vec<&str> = units.iter().map(|unit| unit.0).collect();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() || unit.starts_with(['.', ',']) {
        let rule = format!("{what} is a whole number and a unit");
        return Err(KeyFault::with_help(rule, format!("write for example `\"{example}\"`")));
    }
    if unit.is_empty() {
        let rule = format!("{what} needs a unit: {}", names.join(", "));
        return Err(KeyFault::with_help(
            rule,
            format!("write `\"{number}{}\"` or `\"{number}{}\"`", names[0], names[1]),
        ));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(number, unit, &names));
    };
    let value = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    value.ok_or_else(|| KeyFault::new(format!("{what} this large cannot be counted")))
}

fn unknown_unit(number: &str, unit: &str, names: &[&str]) -> KeyFault {
    let rule = format!("the units are {}", names.join(", "));
    let meant = unit.trim().to_lowercase();
    let same = |name: &&&str| {
        let name = name.to_lowercase();
        name == meant || name.replace('i', "") == meant || name.strip_suffix("ib") == Some(&meant)
    };
    let near = names.iter().find(same).copied();
    match near.or_else(|| names.iter().find(|name| meant.starts_with(**name)).copied()) {
        Some(name) => KeyFault::with_help(rule, format!("did you mean `\"{number}{name}\"`?")),
        None => KeyFault::new(rule),
    }
}

/// The uids of a range such as `51001-51999`, none of which may belong to anyone else.
pub(crate) fn user_range(text: &str) -> Result<RangeInclusive<u32>, KeyFault> {
    let example = "write for example `\"51001-51999\"`";
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    let ends = text.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?)));
    let Some((first, last)) = ends else {
        let rule = "a range of uids is two numbers, first and last, with a `-` between";
        return Err(KeyFault::with_help(rule, example));
    };
    if first > last {
        let help = format!("write `\"{last}-{first}\"`");
        return Err(KeyFault::with_help("the first uid is above the last", help));
    }
    if first < USER_MIN {
        let whose = if first == 0 { "0 is root, and uids" } else { "uids" };
        return Err(KeyFault::with_help(format!("{whose} under {USER_MIN} belong to the system"), example));
    }
    match RESERVED.iter().find(|(uid, _)| (first..=last).contains(uid)) {
        Some((uid, whose)) => Err(KeyFault::with_help(format!("it includes {uid}, {whose}"), example)),
        None => Ok(first..=last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration_ms("1500ms"), Ok(1500));
        assert_eq!(duration_ms("10s"), Ok(10_000));
        assert_eq!(duration_ms("5m"), Ok(300_000));
        assert_eq!(duration_ms("24h"), Ok(86_400_000));
        assert_eq!(duration_ms("0s"), Ok(0));
        for bad in
            ["", "s", "10", "-1s", "+1s", "1.5s", "1_0s", "10 s", "10S", "1s5ms", "99999999999999999999s"]
        {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        assert!(duration_ms(&format!("{}h", u64::MAX)).is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(size_bytes("8192B"), Ok(8192));
        assert_eq!(size_bytes("64KiB"), Ok(65536));
        assert_eq!(size_bytes("256MiB"), Ok(256 << 20));
        assert_eq!(size_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(size_bytes("3kB"), Ok(3000));
        assert_eq!(size_bytes("3MB"), Ok(3_000_000));
        assert_eq!(size_bytes("3GB"), Ok(3_000_000_000));
        for bad in ["", "KiB", "64", "64K", "64kib", "-1B", "0x10B", "99999999999999999999GiB"] {
            assert!(size_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(byte_rate("500B/s"), Ok(500));
        assert_eq!(byte_rate("2KiB/s"), Ok(2048));
        assert_eq!(request_rate("100/s"), Ok(100));
        for bad in ["", "500", "500B", "/s", "500/s", "500B/m", "500 B/s", "500B/s/s", "-1B/s"] {
            assert!(byte_rate(bad).is_err(), "{bad}");
        }
        for bad in ["", "100", "/s", "1.5/s", "-1/s", "+1/s", "100/m", "100 /s", "99999999999999999999/s"] {
            assert!(request_rate(bad).is_err(), "{bad}");
        }
        let help = |text| byte_rate(text).unwrap_err().help.unwrap();
        assert_eq!(help("500B"), "write `\"500B/s\"`");
        assert_eq!(help("5K/s"), "did you mean `\"5KiB/s\"`?");
        assert_eq!(help("500/s"), "write `\"500B/s\"` or `\"500KiB/s\"`");
        assert_eq!(show_byte_rate(2048), "2KiB/s");
    }

    #[test]
    fn a_wrong_unit_gets_the_right_one() {
        let help = |result: Result<u64, KeyFault>| result.unwrap_err().help;
        assert_eq!(help(size_bytes("64K")).unwrap(), "did you mean `\"64KiB\"`?");
        assert_eq!(help(size_bytes("64 mib")).unwrap(), "did you mean `\"64MiB\"`?");
        assert_eq!(help(duration_ms("10sec")).unwrap(), "did you mean `\"10s\"`?");
        assert_eq!(help(duration_ms("10min")).unwrap(), "did you mean `\"10m\"`?");
        assert_eq!(help(duration_ms("10")).unwrap(), "write `\"10ms\"` or `\"10s\"`");
        assert_eq!(help(duration_ms("1y")), None);
    }

    #[test]
    fn shown_as_written() {
        assert_eq!(show_duration(1500), "1500ms");
        assert_eq!(show_duration(50_000), "50s");
        assert_eq!(show_duration(60_000), "1m");
        assert_eq!(show_duration(0), "0ms");
        assert_eq!(show_size(8192), "8KiB");
        assert_eq!(show_size(8193), "8193B");
        assert_eq!(show_size(0), "0B");
        assert_eq!(show_size(4 << 20), "4MiB");
    }

    #[test]
    fn user_ranges() {
        assert_eq!(user_range("51001-51999"), Ok(51001..=51999));
        assert_eq!(user_range("1000-1000"), Ok(1000..=1000));
        for bad in ["", "-", "5", "51001", "51001-", "-5", "a-b", "51999-51001", "0-2000", "999-2000"] {
            assert!(user_range(bad).is_err(), "{bad}");
        }
        for bad in ["+1000-2000", "60000-70000", "65534-65534", "1000000-4294967295", "1000-4294967296"] {
            assert!(user_range(bad).is_err(), "{bad}");
        }
    }
}
