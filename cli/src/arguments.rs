//! Parses the command line, and prints errors without passwords: [`parse`].

use std::borrow::Cow;
use std::env;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::failure::Failure;
use crate::printable::printable;

/// Parses the arguments of this process. On error or `--help`, prints the message and returns the exit code.
pub(crate) fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| print_error::<C>(&error))
}

/// clap's errors repeat the arguments, and any argument may hold a password, such as a URL without `--redis` before it.
/// So this parses masked arguments, and prints the error of those.
fn print_error<C: Parser>(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let arguments = env::args_os().map(|it| {
        let argument = it.to_string_lossy();
        printable(&masked(&argument)).into_owned()
    });
    match C::try_parse_from(arguments) {
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let kind = error.kind();
            let kind = kind.as_str().filter(|_| kind != ErrorKind::Format);
            Failure::usage(kind.unwrap_or("invalid arguments; try `--help`")).print()
        }
    }
}

/// Replaces the credentials in a text, if it has any.
fn masked(text: &str) -> Cow<'_, str> {
    const MASK: &str = "***";
    let mut text = Cow::Borrowed(text);
    if let Some((before, behind)) = text.rsplit_once('@') {
        let start = before.find("://").map(|place| place + "://".len());
        let is_secret = start.is_some() || before.contains(':');
        if is_secret {
            let scheme = &before[..start.unwrap_or(0)];
            text = Cow::Owned(format!("{scheme}{MASK}@{behind}"));
        }
    }
    let lower = text.to_ascii_lowercase();
    let secret = ["pass=", "password="].into_iter().filter_map(|field| {
        let place = lower.find(field)?;
        Some(place + field.len())
    });
    match secret.min() {
        Some(start) => Cow::Owned(format!("{}{MASK}", &text[..start])),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_and_nothing_else() {
        // The text, and how it is shown.
        for row in "\
            redis://user:hunter2@host/ => redis://***@host/
            --redos=rediss://:hunter2@host:1/2 => --redos=rediss://***@host:1/2
            redis://user:hunt@er/2:@host => redis://***@host
            redis://a:hunter2@host redis://b:hunter2@host => redis://***@host
            user:hunter2@host => ***@host
            unix:///x?user=u&PASS=hunter2&db=1 => unix:///x?user=u&PASS=***
            redis://h/?password=hunter2 => redis://h/?password=***
            --json => --json
            me@example.com => me@example.com
            10/s => 10/s
            redis://host:1/2 => redis://host:1/2
            a:b => a:b"
            .lines()
        {
            let (text, shown) = row.trim().split_once(" => ").unwrap();
            assert_eq!(masked(text), shown);
        }
    }
}
