// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"strings"
)

// MaxCommand is the most that a command's arguments have together, in bytes.
const MaxCommand = 64 << 10

// Argv checks a program and its arguments, as execve(2) gets them. No shell reads
// them.
func Argv(argv []string) error {
	if len(argv) == 0 || !path.IsAbs(argv[0]) || path.Clean(argv[0]) != argv[0] || argv[0] == "/" {
		return invalid("argv", "as in [/usr/sbin/fstrim, -A]; a shell is [/bin/sh, -c, \"…\"]", "a command begins with the absolute path of a program")
	}
	size := 0
	for _, a := range argv {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return invalid("argv", "", "an argument holds a NUL byte")
		}
	}
	if size > MaxCommand {
		return invalid("argv", "put it into a script", "the arguments have %d bytes, at most %d are possible", size, MaxCommand)
	}
	return nil
}
