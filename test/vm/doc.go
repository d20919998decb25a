// SPDX-License-Identifier: Apache-2.0

// Package vm boots a fleet's nodes as virtual machines, for the tests of the third tier
// and for the demo: it makes a site, builds, publishes and serves it with the programs, as
// users run them, and starts the machines of package internal/machine from that.
//
// It imports packages of the module only to play the attacker, to make an initrd by hand
// and to decode a status. The tests and the demo import it.
//
// The tests run with
//
//	make test-vm      # 10 minutes, and more on a busy machine
//	make test-long    # the rest, hours
package vm
