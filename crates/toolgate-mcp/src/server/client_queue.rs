//! Queue of the messages to a client while one request runs.
//!
//! Most requests send their client no message, so an empty queue costs one small allocation; a channel of tokio
//! allocates room for 32 messages at once. Invariant: messages keep their order, their number is limited, and after the
//! receiver is gone nothing is queued.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::ClientMessage;

/// Queues messages.
#[derive(Clone)]
pub(super) struct MessageSender(Arc<MessageQueue>);

/// Takes messages in their order. Dropping it closes the queue.
pub(super) struct MessageReceiver(Arc<MessageQueue>);

struct MessageQueue {
    limit: usize,
    state: Mutex<QueueState>,
    /// Notified when a message was taken from a full queue, and when the queue closes.
    room: Notify,
}

#[derive(Default)]
struct QueueState {
    messages: VecDeque<ClientMessage>,
    is_closed: bool,
    reader: Option<Waker>,
}

/// Reason why a message was not queued. Holds the message.
pub(super) enum NotQueued {
    Full(ClientMessage),
    Closed,
}

/// Creates a queue for at most `limit` messages.
pub(super) fn message_queue(limit: usize) -> (MessageSender, MessageReceiver) {
    let queue = Arc::new(MessageQueue { limit, state: Mutex::default(), room: Notify::new() });
    (MessageSender(Arc::clone(&queue)), MessageReceiver(queue))
}

impl MessageSender {
    /// Queues a message if there is room.
    pub(super) fn try_send(&self, message: ClientMessage) -> Result<(), NotQueued> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(NotQueued::Closed);
        }
        if state.messages.len() >= self.0.limit {
            return Err(NotQueued::Full(message));
        }
        state.messages.push_back(message);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Queues a message, and waits for room first. Returns false if the receiver is gone.
    pub(super) async fn send(&self, mut message: ClientMessage) -> bool {
        loop {
            // Created first: a notification between the attempt and the wait is not lost.
            let room = self.0.room.notified();
            message = match self.try_send(message) {
                Ok(()) => return true,
                Err(NotQueued::Closed) => return false,
                Err(NotQueued::Full(message)) => message,
            };
            room.await;
        }
    }
}

impl MessageReceiver {
    /// Waits for the next message. Cancelling loses none.
    pub(super) async fn recv(&mut self) -> ClientMessage {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            match take(&self.0, &mut state) {
                Some(message) => Poll::Ready(message),
                None => {
                    if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                        state.reader = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Takes the next message, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<ClientMessage> {
        take(&self.0, &mut self.0.state.lock())
    }
}

fn take(queue: &MessageQueue, state: &mut QueueState) -> Option<ClientMessage> {
    let message = state.messages.pop_front()?;
    if state.messages.len() + 1 >= queue.limit {
        queue.room.notify_waiters();
    }
    Some(message)
}

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        // Dropped outside the lock: a question reports its end.
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    fn message(number: usize) -> ClientMessage {
        let method = number.to_string().into();
        ClientMessage::Notification(Message::Notification { method, params: None })
    }

    fn number(message: &ClientMessage) -> &str {
        match message {
            ClientMessage::Notification(Message::Notification { method, .. }) => method,
            _ => "",
        }
    }

    #[tokio::test]
    async fn messages_keep_their_order_and_wait_for_room() {
        let (sender, mut receiver) = message_queue(2);
        let sending = async {
            for sent in 0..11 {
                assert!(sender.send(message(sent)).await);
            }
        };
        let receiving = async {
            for expected in 0..11 {
                assert_eq!(number(&receiver.recv().await), expected.to_string());
                tokio::task::yield_now().await;
            }
            assert!(receiver.try_recv().is_none());
        };
        tokio::join!(sending, receiving);
    }

    #[tokio::test]
    async fn a_full_queue_takes_nothing_and_a_closed_one_ends_the_wait() {
        let (sender, receiver) = message_queue(1);
        assert!(sender.try_send(message(0)).is_ok());
        assert!(matches!(sender.try_send(message(1)), Err(NotQueued::Full(_))));
        let closing = async {
            tokio::task::yield_now().await;
            drop(receiver);
        };
        assert!(!tokio::join!(sender.send(message(2)), closing).0);
        assert!(matches!(sender.try_send(message(3)), Err(NotQueued::Closed)));
    }
}
