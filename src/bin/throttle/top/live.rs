//! The table in the terminal, as it changes.

use std::io;
use std::pin::pin;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

use super::View;
use super::board::{Board, Page};
use super::screen::{self, Screen};
use crate::failure::Failure;

/// Until somebody quits, or has seen so many refreshes. Fails if the first one does; later ones say so on the
/// screen, and the next is tried.
pub(crate) async fn run(
    board: Board,
    view: View,
    every: Duration,
    count: u64,
) -> Result<(), Failure> {
    let mut live = Live {
        page: board.page(&view, 0),
        board,
        view,
        scroll: 0,
        typing: false,
        failure: None,
    };
    // Before the screen is cleared, so that what is wrong stays to be read.
    live.board.refresh(Vec::new()).await?;
    let mut terminal = ratatui::try_init().map_err(|error| unusable(&error))?;
    let outcome = live.go_on(&mut terminal, every, count - 1).await;
    let restored = ratatui::try_restore();
    outcome.and(restored).map_err(|error| unusable(&error))
}

fn unusable(error: &io::Error) -> Failure {
    Failure::new("the terminal cannot be used").caused_by(error)
}

struct Live {
    board: Board,
    view: View,
    page: Page,
    scroll: usize,
    typing: bool,
    failure: Option<String>,
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
        terminal: &mut DefaultTerminal,
        every: Duration,
        count: u64,
    ) -> io::Result<()> {
        let mut events = events();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first is over at once, and was seen to.
        ticks.tick().await;
        let mut left = count;
        loop {
            let rows = self.scroll + screen::rows(terminal.size()?.height);
            self.page = self.board.page(&self.view, rows);
            terminal.draw(|frame| screen::draw(frame, &self.screen()))?;
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) if self.heed(&event) == Wish::GoOn => {}
                    _ => return Ok(()),
                },
                _ = ticks.tick() => {
                    if left == 0 || self.refresh(rows, &mut events).await == Wish::Quit {
                        return Ok(());
                    }
                    left -= 1;
                }
            }
        }
    }

    fn screen(&self) -> Screen<'_> {
        Screen {
            page: &self.page,
            view: &self.view,
            scroll: self.scroll,
            typing: self.typing,
            failure: self.failure.as_deref(),
        }
    }

    /// Heeds keys meanwhile: who wants to quit does not wait for Redis.
    async fn refresh(&mut self, rows: usize, events: &mut UnboundedReceiver<Event>) -> Wish {
        let shown = self.board.shown(&self.view, rows);
        let mut later = Vec::new();
        {
            let mut refresh = pin!(self.board.refresh(shown));
            loop {
                tokio::select! {
                    refreshed = &mut refresh => {
                        self.failure = refreshed.err().map(|failure| failure.to_string());
                        break;
                    }
                    event = events.recv() => match event {
                        Some(event) if !is_interrupt(&event) => later.push(event),
                        _ => return Wish::Quit,
                    },
                }
            }
        }
        let quits = later.iter().any(|event| self.heed(event) == Wish::Quit);
        if quits { Wish::Quit } else { Wish::GoOn }
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
        let last = self.page.keys.saturating_sub(1);
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
