//! The command `throttle`: inspects limits in Redis, and simulates quotas and rules.
//!
//! The guide, `README.md`, shows what each command prints.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::failure::Failure;
use self::output::Output;

mod arguments;
mod check;
mod completions;
mod connect;
mod failure;
mod file;
mod key_args;
mod level;
mod outcome;
mod output;
mod pause;
mod plot;
mod printable;
mod reset;
mod resume;
mod show;
mod simulate;
mod status;
mod time;
mod top;

const CODES: &str = "\
Exit codes:
  0  success
  1  a check failed, a request would be refused, a key or a value is missing or invalid, or a change
     was not made
  2  the arguments are invalid or contradict each other
  3  Redis cannot be reached, or refuses the command

Results go to standard output, errors and hints to standard error. A terminal shows colors unless \
NO_COLOR is set.";

/// Inspect limits in Redis, and simulate quotas and rules
#[derive(Parser)]
#[command(name = "throttle", version, after_help = CODES, max_term_width = 100)]
struct Cli {
    /// Print JSON, one object per line
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Top(top::Args),
    Show(show::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Reset(reset::Args),
    Check(check::Args),
    Simulate(simulate::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let Cli { json, command } = match arguments::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let mut output = Output::new(json);
    match run(command, &mut output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(),
    }
}

fn run(command: Command, output: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Top(args) => block_on(top::run(args, output)),
        Command::Show(args) => block_on(show::run(args, output)),
        Command::Pause(args) => block_on(pause::run(args, output)),
        Command::Resume(args) => block_on(resume::run(args, output)),
        Command::Reset(args) => block_on(reset::run(args, output)),
        Command::Check(args) => check::run(args, output),
        Command::Simulate(args) => simulate::run(args, output),
        Command::Completions(args) => completions::run::<Cli>(args, output),
    }
}

/// Runs a command on a runtime with one thread.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("the async runtime cannot start").caused_by(&error))?;
    runtime.block_on(command)
}
