// SPDX-License-Identifier: Apache-2.0

// Command peers puts caisson beside what people use today, each as Debian has it, each with the
// same work, written as its own users would.
//
//	go run ./test/peers [-side SIDE [PEER...]] [-runs N] [-out docs/benchmark]
//
// It has five sides:
//
//   - nodes: Ansible, Puppet, CFEngine, cloud-init, Ignition and systemd's own tools configure a
//     host. This package has them.
//   - images: mkosi, buildah and mmdebstrap make an image, see package images.
//   - updates: casync, zstd, rsync and ostree bring an update, see package updates.
//   - formats: images of squashfs and EROFS are made of one tree, and read, see package updates.
//   - polls: docker-registry is asked by 1,000 nodes, see package polls.
//
// It makes roots of Debian with all of them, once, below the user's cache directory. On the side
// of nodes each run is a host of its own: a copy of that root in memory with its own mounts,
// processes, network and name, without a running systemd. On it a peer
//
//   - applies the configuration from nothing,
//   - looks again and finds nothing to do,
//   - mends what was changed by hand: a kernel parameter and a file,
//   - takes everything back, where it can;
//
// and on further hosts it is killed while it applies, and run again.
//
// What a peer claims is looked at by this program, not by the peer. The runs of all peers take
// turns, so that each sees the same machine. It writes what was measured as JSON, and draws it.
//
// It runs as root. Packages come from Debian's archive; nothing else leaves the machine.
package main
