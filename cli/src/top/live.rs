//! The live table in the terminal.

use std::io;
use std::pin::pin;
use std::process;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use super::View;
use super::board::{Board, Page};
use super::screen::{self, Screen};
use super::signals::Signals;
use crate::failure::Failure;

/// Runs until the user quits, or for `count` refreshes. Fails if the first refresh fails; the screen shows later
/// failures, and the next refresh tries again. On a signal, restores the terminal and ends the process.
pub(crate) async fn run(
    mut board: Board,
    view: View,
    every: Duration,
    count: u64,
) -> Result<(), Failure> {
    // Before the screen is cleared, so that an error stays visible.
    board.refresh(Vec::new()).await?;
    let mut signals = Signals::new().map_err(|error| terminal_failure(&error))?;
    let mut terminal = ratatui::try_init().map_err(|error| terminal_failure(&error))?;
    let mut live = Live {
        page: board.page(&view, 0),
        view,
        scroll: 0,
        typing: false,
        failure: None,
        events: events(),
    };
    let outcome = tokio::select! {
        biased;
        code = signals.recv() => Err(code),
        outcome = live.run(board, &mut terminal, every, count - 1) => Ok(outcome),
    };
    let restored = terminal.show_cursor().and(ratatui::try_restore());
    match outcome {
        Ok(outcome) => outcome
            .and(restored)
            .map_err(|error| terminal_failure(&error)),
        // Ignores errors of the restore: the terminal itself may be gone.
        Err(code) => process::exit(code.into()),
    }
}

fn terminal_failure(error: &io::Error) -> Failure {
    Failure::new("the terminal cannot be used").caused_by(error)
}

struct Live {
    view: View,
    page: Page,
    scroll: usize,
    typing: bool,
    failure: Option<String>,
    events: UnboundedReceiver<Event>,
}

/// The effect of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Continue,
    Quit,
}

impl Live {
    async fn run(
        &mut self,
        mut board: Board,
        terminal: &mut DefaultTerminal,
        every: Duration,
        count: u64,
    ) -> io::Result<()> {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick completes immediately, and the first refresh is done.
        ticks.tick().await;
        let mut left = count;
        loop {
            let lines = screen::rows(terminal.size()?.height);
            self.page = board.page(&self.view, self.scroll + lines);
            // The number of rows may have decreased.
            self.scroll = self.scroll.min(self.page.passing.saturating_sub(1));
            let rows = self.scroll + lines;
            self.draw(terminal)?;
            tokio::select! {
                biased;
                action = self.next_action() => if action == Action::Quit {
                    return Ok(());
                },
                _ = ticks.tick() => {
                    if left == 0 || self.refresh(&mut board, terminal, rows).await? == Action::Quit {
                        return Ok(());
                    }
                    left -= 1;
                }
            }
        }
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let screen = Screen {
            page: &self.page,
            view: &self.view,
            scroll: self.scroll,
            typing: self.typing,
            failure: self.failure.as_deref(),
        };
        terminal.draw(|frame| screen::draw(frame, &screen))?;
        Ok(())
    }

    /// Refreshes the board. Handles key presses and redraws at the same time, so that input does not wait for Redis.
    async fn refresh(
        &mut self,
        board: &mut Board,
        terminal: &mut DefaultTerminal,
        rows: usize,
    ) -> io::Result<Action> {
        let shown = board.shown(&self.view, rows);
        let mut refresh = pin!(board.refresh(shown));
        loop {
            tokio::select! {
                refreshed = &mut refresh => {
                    self.failure = refreshed.err().map(|failure| failure.to_string());
                    return Ok(Action::Continue);
                }
                action = self.next_action() => match action {
                    Action::Continue => self.draw(terminal)?,
                    Action::Quit => return Ok(Action::Quit),
                },
            }
        }
    }

    async fn next_action(&mut self) -> Action {
        match self.events.recv().await {
            Some(event) => self.handle(&event),
            None => Action::Quit,
        }
    }

    fn handle(&mut self, event: &Event) -> Action {
        let Event::Key(KeyEvent {
            code,
            kind: KeyEventKind::Press | KeyEventKind::Repeat,
            ..
        }) = event
        else {
            return Action::Continue;
        };
        if is_interrupt(event) {
            return Action::Quit;
        }
        if self.typing {
            self.edit_filter(*code);
            return Action::Continue;
        }
        let last = self.page.passing.saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('s') => self.view.next_sort(),
            KeyCode::Char('/') => {
                self.view.filter.clear();
                self.typing = true;
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll = (self.scroll + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = (self.scroll + 10).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        Action::Continue
    }

    fn edit_filter(&mut self, code: KeyCode) {
        let filter = &mut self.view.filter;
        match code {
            KeyCode::Char(char) => filter.push(char),
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        self.scroll = 0;
    }
}

/// Ctrl-C, which raw mode delivers as a key press instead of a signal.
fn is_interrupt(event: &Event) -> bool {
    let Event::Key(KeyEvent {
        code, modifiers, ..
    }) = event
    else {
        return false;
    };
    *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL)
}

/// Terminal events, read by a thread that lives as long as the process.
fn events() -> UnboundedReceiver<Event> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::super::order::Sort;
    use super::*;

    #[test]
    fn scrolling_stops_at_the_last_row() {
        let page = Page {
            passing: 2,
            ..Page::default()
        };
        let mut live = Live {
            view: View {
                sort: Sort::Used,
                filter: "a".to_owned(),
            },
            page,
            scroll: 0,
            typing: false,
            failure: None,
            events: unbounded_channel().1,
        };
        for code in [KeyCode::Char('j'), KeyCode::Down, KeyCode::PageDown] {
            live.handle(&Event::Key(code.into()));
            assert_eq!(live.scroll, 1);
        }
    }
}
