// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strconv"

	"github.com/caisson-os/caisson/spec"
)

// OpenFiles is fs.nr_open of a kernel that nobody has told otherwise, see proc_sys_fs(5).
const OpenFiles = "1048576"

// MoreOpenFiles reports whether a limit asks for more open files than a value of fs.nr_open lets
// the kernel grant: setrlimit(2) fails then, and PAM ends the session.
func MoreOpenFiles(l spec.Limit, most string) bool {
	want, err := strconv.ParseUint(l.Value, 10, 64)
	has, errHas := strconv.ParseUint(most, 10, 64)
	return l.Item == "nofile" && err == nil && errHas == nil && want > has
}
