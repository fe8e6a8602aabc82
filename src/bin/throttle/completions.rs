//! `throttle completions`: what shells ask for.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

/// Print what completes this command in a shell
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell that is to read it
    shell: Shell,
}

pub(crate) fn run<C: CommandFactory>(args: Args, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "throttle", &mut script);
    output.print(&script)
}
