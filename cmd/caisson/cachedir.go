// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// systemCache is kept between the builds of whoever may write to it.
const systemCache = "/var/cache/caisson"

// cacheDefault says in a flag's help what [cacheDir] does.
const cacheDefault = "(" + systemCache + " when empty, or ~/.cache/caisson for users who may not write there)"

// cacheDir returns the directory that is kept between builds: the named one, the
// system's, or the user's own. Root of a user namespace is a user here.
func cacheDir(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	for _, dir := range []string{systemCache, filepath.Dir(systemCache)} {
		if unix.Access(dir, unix.W_OK) == nil {
			return systemCache, nil
		}
	}
	own, err := os.UserCacheDir()
	return filepath.Join(own, "caisson"), err
}
