//! `throttle completions`: completion scripts for shells.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Output, Report};

/// Print a completion script for a shell
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell that loads the script
    shell: Shell,
}

#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

pub(crate) fn run<C: CommandFactory>(args: Args, output: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "throttle", &mut script);
    output.show(&Completions {
        shell: args.shell.to_string(),
        script: String::from_utf8_lossy(&script).into_owned(),
    })
}

impl Report for Completions {
    fn write(&self, text: &mut dyn Write) -> io::Result<()> {
        text.write_all(self.script.as_bytes())
    }
}
