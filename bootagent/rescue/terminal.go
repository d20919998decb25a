// SPDX-License-Identifier: Apache-2.0

package rescue

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Terminal names the device behind /dev/console, as in ttyS0: the last that the kernel was told.
// tty0 is the virtual console that is shown, of which the first has a getty.
func Terminal(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "/sys/class/tty/console/active"))
	if err != nil {
		return "", err
	}
	words := strings.Fields(string(data))
	if len(words) == 0 || strings.Contains(words[len(words)-1], "/") {
		return "", fmt.Errorf("the kernel has no console: %q", data)
	}
	if last := words[len(words)-1]; last != "tty0" {
		return last, nil
	}
	return "tty1", nil
}
