// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/fleet/advice"
)

// advisoryFlag names a file of Debian's security tracker.
type advisoryFlag string

func (f *advisoryFlag) flag(fs *pflag.FlagSet) {
	fs.StringVar((*string)(f), "advisories", "", "`FILE` of Debian's security tracker (its data/json): say which advisories the packages close, and how many are open")
}

// open reads the file, nil where none was named.
func (f advisoryFlag) open(lock *builder.LockFile) (*advice.Advice, error) {
	if f == "" {
		return nil, nil
	}
	return advice.Open(string(f), lock)
}
