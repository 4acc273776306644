//! What the program says that has read certificates, keys, lists and users.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Sees: lines of a process that a made-up file may
//! have taken over. Never: passes on a character that is not printable ASCII.

use wire::tls::Verdict;

/// LIMIT: bytes of one answer: the numbers of 64 hosts, and names.
pub(super) const ANSWER_BYTES_MAX: usize = 4096;

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A certificate and its key.
    Certificate {
        verdict: Verdict,
        /// From when on and until when it is valid, in seconds since 1970.
        validity: (u64, u64),
        /// Which of the hosts it names.
        named: Vec<usize>,
        /// Some of the names in it.
        names: Vec<String>,
        /// How many above it are valid no more, or not yet.
        out_of_date: u16,
        /// How many of the file lead nowhere.
        left_out: u16,
    },
    /// The file is as it should be.
    Good,
    /// It can be used, and is perhaps not meant.
    Odd(String),
    /// It cannot be used.
    Bad(String),
}

const VERDICTS: [Verdict; 7] = [
    Verdict::Good,
    Verdict::Unreadable,
    Verdict::NoKey,
    Verdict::BadKey,
    Verdict::NoCertificate,
    Verdict::BadCertificate,
    Verdict::Mismatch,
];

/// As many answers as there were questions; `None` if that is not what was printed.
pub(super) fn parse(printed: &[u8], questions: usize) -> Option<Vec<Answer>> {
    let text = std::str::from_utf8(printed).ok().filter(|text| text.is_ascii())?;
    let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(text).split('\n').collect();
    let answers: Option<Vec<Answer>> = lines.iter().map(|line| answer(line)).collect();
    answers.filter(|answers| answers.len() == questions)
}

fn answer(line: &str) -> Option<Answer> {
    if line.len() > ANSWER_BYTES_MAX || line.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match (word, rest) {
        ("good", "") => Some(Answer::Good),
        ("odd", rest) if !rest.is_empty() => Some(Answer::Odd(rest.to_owned())),
        ("bad", rest) if !rest.is_empty() => Some(Answer::Bad(rest.to_owned())),
        ("certificate", rest) => certificate(rest),
        _ => None,
    }
}

fn certificate(rest: &str) -> Option<Answer> {
    let [verdict, since, until, named, names, out_of_date, left_out] =
        rest.split(' ').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number: u8 = verdict.parse().ok()?;
    let list = |text: &str| -> Vec<String> {
        if text == "-" { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
    };
    Some(Answer::Certificate {
        verdict: VERDICTS.into_iter().find(|verdict| *verdict as u8 == number)?,
        validity: (since.parse().ok()?, until.parse().ok()?),
        named: list(named).iter().map(|number| number.parse().ok()).collect::<Option<_>>()?,
        names: list(names),
        out_of_date: out_of_date.parse().ok()?,
        left_out: left_out.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_lines_of_one_form() {
        let text =
            b"good\nodd no user\nbad line 2\ncertificate 0 1 2 0,3 a.test,*.b.test 0 0\ncertificate 6 0 0 - - 0 0\n";
        let certificate = |verdict, validity, named: &[usize], names: &[&str]| Answer::Certificate {
            verdict,
            validity,
            named: named.to_vec(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            out_of_date: 0,
            left_out: 0,
        };
        let expected = [
            Answer::Good,
            Answer::Odd("no user".into()),
            Answer::Bad("line 2".into()),
            certificate(Verdict::Good, (1, 2), &[0, 3], &["a.test", "*.b.test"]),
            certificate(Verdict::Mismatch, (0, 0), &[], &[]),
        ];
        assert_eq!(parse(text, 5), Some(expected.to_vec()));
        assert_eq!(parse(text, 4), None);
        let wrong: [&[u8]; 10] = [
            b"",
            b"well\n",
            b"good x\n",
            b"bad\n",
            b"bad \x1b[2J\n",
            b"bad \xff\n",
            b"certificate 7 0 0 - - 0 0\n",
            b"certificate 0 1 2 x - 0 0\n",
            b"certificate 0 1 2 - -\n",
            b"certificate 0 1 2 - - 0 -1\n",
        ];
        for line in wrong {
            assert_eq!(parse(line, 1), None, "{line:?}");
        }
    }
}
