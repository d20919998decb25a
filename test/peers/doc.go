// SPDX-License-Identifier: Apache-2.0

// Command peers puts caisson beside what people configure hosts with today: Ansible, Puppet, CFEngine
// and systemd's own tools, each as Debian has it, each with the same configuration written as
// its own users would.
//
//	go run ./test/peers [-runs 5] [-out docs/benchmark] [PEER...]
//
// It makes one root of Debian with all of them, once, below the user's cache directory. Each
// run is a host of its own: a copy of that root in memory with its own mounts, processes,
// network and name, without a running systemd. On it a peer
//
//   - applies the configuration from nothing,
//   - looks again and finds nothing to do,
//   - mends what was changed by hand: a kernel parameter and a file,
//   - takes everything back, where it can.
//
// What it claims is looked at by this program, not by the peer. The runs of all peers take
// turns, so that each sees the same machine. It writes what was measured as JSON, and draws it.
//
// It runs as root, and nothing that it does leaves its namespaces.
package main
