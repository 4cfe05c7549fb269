//! Fake backends on raw sockets, a gate in front of them, and a client that sees every byte.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod control;
pub(crate) mod gate;

pub(crate) use backend::{Backend, Reply, Then};
pub(crate) use client::{call, raw};
pub(crate) use gate::{Issuer, TestGate, World};
