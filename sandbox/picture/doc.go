// SPDX-License-Identifier: Apache-2.0

// Package picture says what a running machine is, as a program sees it that knows nothing of
// caisson's agent: what the kernel's files say, what systemd says, what is in writable places.
//
//	p := picture.Take(picture.Options{Attributes: []string{"/sys/block/*/queue/scheduler"}})
//	for _, d := range picture.Compare(before, after) { … }
//
// A picture is a flat table: "sysctl vm.swappiness" has the value 10, "file /etc/hosts" has mode,
// owner and digest. What changes on a machine that nobody touches is in alone.txt, a reason
// each, and left out of comparisons; files of it are not read.
//
// It is taken by this program, put into the machine under the name [Program]. It imports nothing
// of caisson: a fault of the agent must not be repeated here. sandbox, sandbox/rehearsal and cmd/caisson import it.
package picture
