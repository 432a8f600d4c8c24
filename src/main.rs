//! The `ringlog` binary: arguments, logging, and the command.

use std::process::ExitCode;

use clap::Parser;
use ringlog::broker;
use ringlog::cli;
use ringlog::cli::args::{
    Arguments, Command, DoctorArguments, LogCommand, ServeArguments, TxnCommand,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_logging();
    match arguments.command {
        Command::Serve(serve) => run_broker(&serve),
        Command::Log(command) => run_log(&command),
        Command::Txn(command) => run_txn(&command),
        Command::Doctor(arguments) => run_doctor(&arguments),
    }
}

fn run_broker(arguments: &ServeArguments) -> ExitCode {
    let config = match arguments.load() {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    if arguments.check {
        print!("{}", config.report());
        return ExitCode::SUCCESS;
    }
    match broker::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

fn run_log(command: &LogCommand) -> ExitCode {
    match cli::log::run(command, &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => refuse(&error),
    }
}

fn run_txn(command: &TxnCommand) -> ExitCode {
    match cli::txn::run(command, ringlog::io::clock::wall_ms(), &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

fn run_doctor(arguments: &DoctorArguments) -> ExitCode {
    match cli::doctor::run(arguments, &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("ringlog: {error}");
    ExitCode::from(2)
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("RINGLOG_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
