//! What is generated from the arguments: completion, and the man page.

use std::io::{self, Write as _};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{
    arguments::Arguments,
    exit::{self, Exit, Failure},
};

pub(crate) fn completion(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "distlock", &mut text);
    print(&text)
}

/// Writes the man page, with a section for each subcommand.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    render(&command, &mut text)
        .map_err(|error| Failure::new(Exit::Internal, format!("the page cannot be written: {error}")))?;
    print(&text)
}

fn render(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(text)?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    for subcommand in command.get_subcommands() {
        let usage = subcommand.clone().render_usage().to_string();
        let man = Man::new(subcommand.clone());
        let mut part = Vec::new();
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        writeln!(text, ".SH {}", subcommand.get_name().to_uppercase())?;
        writeln!(text, "{}", usage.trim_start_matches("Usage: ").replace('-', "\\-"))?;
        for line in String::from_utf8_lossy(&part).lines() {
            // The quotes are defined once, at the beginning of the page.
            if !line.starts_with(".ie") && !line.starts_with(".el") {
                // The sections of a subcommand are one level below.
                writeln!(text, "{}", line.replace(".SH ", ".SS "))?;
            }
        }
    }
    // The lines are kept as they are.
    writeln!(text, ".SH EXIT STATUS\n.nf\n{}.fi", exit::table())
}

/// Writes to the standard output. A reader that has seen enough is no failure.
pub(crate) fn print(text: &[u8]) -> Result<u8, Failure> {
    write(text).map(|_| 0)
}

/// Writes to the standard output, and returns whether there still is a reader.
pub(crate) fn write(text: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Internal, format!("the output cannot be written: {error}"))),
    }
}
