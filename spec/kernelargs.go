// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
	"strings"
)

// kernelDefaults are on every command line that caisson writes, unless the site
// names the same parameter. See kernel-parameters.txt.
//
// panic=30: a kernel that panics before /init stays dead otherwise, with the last
// good generation on its disk. Only a start-over leads back to it; 30 seconds leave
// time to read why.
//
// What is not here, on purpose: oops=panic, softlockup_panic=1, hung_task_panic=1,
// nmi_watchdog=panic. They end a node over a fault that its workload may survive,
// and on a busy hypervisor, or with a slow disk, over no fault at all. A kernel that
// no longer schedules is ended by the hardware watchdog. A site that wants them puts
// them into its kernel arguments.
var kernelDefaults = []string{"panic=30"}

// KernelLine returns the author's kernel arguments, followed by the defaults that
// the author did not name.
func KernelLine(args []string) []string {
	line := slices.Clone(args)
	for _, word := range kernelDefaults {
		name, _, _ := strings.Cut(word, "=")
		named := func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") }
		if !slices.ContainsFunc(args, named) {
			line = append(line, word)
		}
	}
	return line
}
