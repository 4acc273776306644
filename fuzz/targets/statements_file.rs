//! A file of statements, in whatever dialect: every line of every mistake is there, and what is accepted keeps its
//! text.

use statements::{Dialect, Engine, WordPart};

pub fn fuzz(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let servers = Engine::ALL.into_iter().map(|(_, engine)| Some(engine));
    [None].into_iter().chain(servers).for_each(|dialect| read(text, dialect));
}

fn read(text: &str, dialect: Dialect) {
    match statements::parse(text, dialect) {
        Ok(found) => {
            for (number, statement) in found.statements.iter().enumerate() {
                let sql = statement.sql(|number| format!(":{}", statement.parameters[number].name));
                assert!(text.contains(&sql), "{sql:?} is not in the file");
                let has_it = |steps: &[usize]| steps.contains(&number);
                let is_called = found.transactions.iter().any(|transaction| has_it(&transaction.steps));
                assert!(!statement.services.is_empty() || is_called, "nobody may call {sql:?}");
                let parts = statement.words.iter().flatten();
                let is_there = |part: &WordPart| !matches!(part, WordPart::Parameter(number) if *number >= statement.parameters.len());
                assert!(parts.into_iter().all(is_there));
            }
            for transaction in &found.transactions {
                assert!(transaction.steps.iter().all(|step| *step < found.statements.len()));
            }
        }
        Err(mistakes) => {
            let lines = text.lines().count().max(1);
            assert!(!mistakes.is_empty());
            assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line)), "{mistakes:?}");
        }
    }
}
