// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearseAccounts rehearses a user more on bookworm, which takes her over its running root. What
// does not come back is named, and nothing else: a key that the kernel takes once, and what a service
// and a script have written.
func TestLongRehearseAccounts(t *testing.T) {
	require.Long(t)
	f := rehearsed(t, "suite: trixie", "suite: bookworm", "abi <abi/4.0>", "abi <abi/3.0>")
	f.edits(t, "      - user_name: admin\n", "      - user_name: eve\n      - user_name: admin\n",
		"  sysctl:\n", "  sysctl:\n    kernel.yama.ptrace_scope: 3\n",
		"  exec:\n", "  exec:\n    20-left:\n      rerun_policy: once_successfully\n      data: |\n        #!/bin/sh\n        systemd-run -q --wait -p StateDirectory=ledger sh -c 'echo 1 >/var/lib/ledger/book'; echo left >/root/left\n")
	f.build(t)
	f.rehearseLeaves(t, "live", []string{"file /root/left", "file /var/lib/ledger/book", "sysctl kernel.yama.ptrace_scope"},
		"--check", "id eve && cat /proc/sys/kernel/yama/ptrace_scope /var/lib/ledger/book")
}
