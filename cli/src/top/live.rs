//! The table in the terminal, as it changes.

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

/// Until somebody quits, or has seen so many refreshes. Fails if the first one does; later ones say so on the
/// screen, and the next is tried. A signal ends the process once the terminal is as it was.
pub(crate) async fn run(
    mut board: Board,
    view: View,
    every: Duration,
    count: u64,
) -> Result<(), Failure> {
    // Before the screen is cleared, so that what is wrong stays to be read.
    board.refresh(Vec::new()).await?;
    let mut signals = Signals::new().map_err(|error| unusable(&error))?;
    let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
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
        outcome = live.go_on(board, &mut terminal, every, count - 1) => Ok(outcome),
    };
    let restored = ratatui::try_restore();
    match outcome {
        Ok(outcome) => outcome.and(restored).map_err(|error| unusable(&error)),
        // The terminal itself may be gone, which changes nothing.
        Err(code) => process::exit(code.into()),
    }
}

fn unusable(error: &io::Error) -> Failure {
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

/// What somebody wants by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    GoOn,
    Quit,
}

impl Live {
    async fn go_on(
        &mut self,
        mut board: Board,
        terminal: &mut DefaultTerminal,
        every: Duration,
        count: u64,
    ) -> io::Result<()> {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is over at once, and was seen to.
        ticks.tick().await;
        let mut left = count;
        loop {
            let lines = screen::rows(terminal.size()?.height);
            self.page = board.page(&self.view, self.scroll + lines);
            // There may be fewer than there were.
            self.scroll = self.scroll.min(self.page.passing.saturating_sub(1));
            let rows = self.scroll + lines;
            self.draw(terminal)?;
            tokio::select! {
                biased;
                wish = self.heed_next() => if wish == Wish::Quit {
                    return Ok(());
                },
                _ = ticks.tick() => {
                    if left == 0 || self.refresh(&mut board, terminal, rows).await? == Wish::Quit {
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

    /// Heeds keys meanwhile, and shows that it has: who types does not wait for Redis.
    async fn refresh(
        &mut self,
        board: &mut Board,
        terminal: &mut DefaultTerminal,
        rows: usize,
    ) -> io::Result<Wish> {
        let shown = board.shown(&self.view, rows);
        let mut refresh = pin!(board.refresh(shown));
        loop {
            tokio::select! {
                refreshed = &mut refresh => {
                    self.failure = refreshed.err().map(|failure| failure.to_string());
                    return Ok(Wish::GoOn);
                }
                wish = self.heed_next() => match wish {
                    Wish::GoOn => self.draw(terminal)?,
                    Wish::Quit => return Ok(Wish::Quit),
                },
            }
        }
    }

    async fn heed_next(&mut self) -> Wish {
        match self.events.recv().await {
            Some(event) => self.heed(&event),
            None => Wish::Quit,
        }
    }

    fn heed(&mut self, event: &Event) -> Wish {
        let Event::Key(KeyEvent {
            code,
            kind: KeyEventKind::Press | KeyEventKind::Repeat,
            ..
        }) = event
        else {
            return Wish::GoOn;
        };
        if is_interrupt(event) {
            return Wish::Quit;
        }
        if self.typing {
            self.heed_text(*code);
            return Wish::GoOn;
        }
        let last = self.page.passing.saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
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
        Wish::GoOn
    }

    fn heed_text(&mut self, code: KeyCode) {
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

/// In a terminal that is used as a whole, this is a key as any other.
fn is_interrupt(event: &Event) -> bool {
    let Event::Key(KeyEvent {
        code, modifiers, ..
    }) = event
    else {
        return false;
    };
    *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL)
}

/// What is typed, read by a thread that lives as long as the process.
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
    fn the_last_row_is_never_scrolled_away() {
        let page = Page {
            keys: 1_000,
            about: false,
            complete: true,
            error: None,
            stale: 0,
            strange: None,
            rows: Vec::new(),
            passing: 2,
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
            live.heed(&Event::Key(code.into()));
            assert_eq!(live.scroll, 1);
        }
    }
}
