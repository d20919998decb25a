// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os/exec"
)

// MakeStateDisk makes a raw image with one partition, an ext4 named caisson-state, and copies
// what is in a directory into it, nothing where content is "". Room that an image of this size
// has been given stays taken.
func MakeStateDisk(ctx context.Context, file string, megabytes int, content string) error {
	script := fmt.Sprintf(`set -e
truncate -s %[2]dM %[1]q
sgdisk -n 1:2048:0 -c 1:caisson-state %[1]q >/dev/null
mkfs.ext4 -q -F -E offset=1048576,nodiscard ${1:+-d "$1"} %[1]q %[3]dM`, file, megabytes, megabytes-4)
	if text, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", content).CombinedOutput(); err != nil {
		return fmt.Errorf("make state disk %s: %w\n%s", file, err, text)
	}
	return nil
}
