//! Looks at limits in Redis, and tries out quotas and rules before anything depends on them.
//!
//! The guide, `README.md`, shows what each command prints.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::failure::Failure;
use self::output::Output;

mod arguments;
mod check;
mod chosen;
mod completions;
mod connect;
mod failure;
mod file;
mod outcome;
mod output;
mod pause;
mod plot;
mod printable;
mod reset;
mod resume;
mod show;
mod simulate;
mod standing;
mod time;
mod top;

const CODES: &str = "\
Exit codes:
  0  all is well
  1  what was looked at is wrong or not there, or what was asked for was not done
  2  the command line cannot be understood, or contradicts itself
  3  Redis cannot be reached, or refuses

Text goes to the standard output, errors and hints to the standard error. There are colors on a \
terminal, unless NO_COLOR is set.";

/// Looks at limits in Redis, and tries out quotas and rules
#[derive(Parser)]
#[command(name = "throttle", version, after_help = CODES, max_term_width = 100)]
struct Cli {
    /// Print JSON, one object in one line
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
        Err(failure) => failure.tell(),
    }
}

fn run(command: Command, output: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Top(args) => on_a_runtime(top::run(args, output)),
        Command::Show(args) => on_a_runtime(show::run(args, output)),
        Command::Pause(args) => on_a_runtime(pause::run(args, output)),
        Command::Resume(args) => on_a_runtime(resume::run(args, output)),
        Command::Reset(args) => on_a_runtime(reset::run(args, output)),
        Command::Check(args) => check::run(args, output),
        Command::Simulate(args) => simulate::run(args, output),
        Command::Completions(args) => completions::run::<Cli>(args, output),
    }
}

/// Of one thread, which has little to do.
fn on_a_runtime(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("no runtime could be started").caused_by(&error))?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_commands_do_not_contradict_one_another() {
        Cli::command().debug_assert();
    }
}
