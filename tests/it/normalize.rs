mod dispatching;
mod encoding;
mod naming;
mod reading;
