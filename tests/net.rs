//! The promises of streams and listeners, each kept under every runtime: with a ring where everything overflows, with a
//! kernel that fails in passing, and with hardly a receive buffer.
#![allow(missing_docs, clippy::unwrap_used)]

mod net_cases;
mod net_support;

macro_rules! under {
    ($setup:ident: $($group:ident::$case:ident),* $(,)?) => {
        mod $setup {
            $(
                #[test]
                fn $case() {
                    let setup = crate::net_support::setups::$setup();
                    crate::net_support::run(setup, crate::net_cases::$group::$case);
                }
            )*
        }
    };
}

macro_rules! suite {
    ($($cases:tt)*) => {
        under!(ordinary: $($cases)*);
        under!(tiny_ring: $($cases)*);
        under!(troubled_kernel: $($cases)*);
        under!(troubled_tiny_ring: $($cases)*);
        under!(one_small_buffer: $($cases)*);
        under!(two_buffers: $($cases)*);
        under!(spinning: $($cases)*);
    };
}

suite! {
    transfer::bytes_of_every_size_come_back_from_an_echo,
    transfer::a_read_adds_to_what_the_buffer_holds,
    transfer::a_read_into_no_room_is_refused,
    transfer::bytes_keep_their_order_however_they_are_written_and_read,
    transfer::a_vectored_write_of_too_many_buffers_is_a_short_write,
    transfer::both_halves_work_at_the_same_time,
    transfer::a_dropped_receive_loses_no_byte,
    transfer::more_operations_than_the_queues_hold_all_end,
    back_pressure::small_writes_to_a_peer_that_does_not_read_wait_and_then_arrive_in_order,
    back_pressure::a_flush_waits_until_all_is_with_the_kernel,
    back_pressure::closing_gives_up_what_the_peer_does_not_take,
    back_pressure::a_dropped_stream_still_sends_what_was_written,
    back_pressure::an_unread_stream_draws_in_a_bounded_number_of_buffers,
    ends::each_side_ends_on_its_own,
    ends::ending_the_reading_side_ends_a_pending_read,
    ends::the_peer_sees_the_end_of_a_dropped_stream,
    ends::a_stream_dropped_after_a_small_write_ends_though_nothing_else_happens,
    ends::the_peer_sees_the_end_of_a_closed_stream,
    ends::a_write_that_failed_late_is_told_by_a_later_operation,
    ends::closing_lingers_for_no_time,
    ends::unread_bytes_survive_the_end_of_an_armed_receive,
    ends::a_departure_that_is_given_up_costs_no_receive,
    ends::a_stream_that_has_to_travel_is_held_up_by_an_armed_receive_once,
    connects::a_connect_without_a_listener_is_refused,
    connects::a_connect_to_a_full_backlog_times_out,
    connects::many_connects_under_allocator_churn_succeed,
    accepts::one_listener_accepts_thousands,
    accepts::a_dropped_accept_loses_no_connection,
    accepts::connections_nobody_took_are_closed_with_their_listener,
    accepts::a_listener_draws_in_a_bounded_number_of_connections,
    accepts::a_cancel_ends_its_own_operation_only,
}
