// SPDX-License-Identifier: Apache-2.0

package require

import (
	"path/filepath"
	"runtime"
	"testing"
)

// Runs needs a kernel that runs programs of an architecture, by an emulator that it has opened
// already where that is not its own ("binfmt").
func Runs(t testing.TB, arch string) {
	t.Helper()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	if arch == runtime.GOARCH {
		return
	}
	if found, err := filepath.Glob("/proc/sys/fs/binfmt_misc/*" + machine); err != nil || len(found) == 0 {
		Missing(t, "binfmt", "binfmt_misc has no emulator for "+arch+": apt install qemu-user-static")
	}
}
