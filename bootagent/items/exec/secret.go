// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// Secrets are those that scripts are given.
type Secrets struct {
	Dir   string                   // where they are opened
	All   []spec.Secret            // of the overlay
	Lacks func(name string) string // why there is none of a name, "" where there is one
}

// Signed is a script of an overlay whose signature this node can verify.
type Signed struct {
	Script  spec.Exec
	Secrets []spec.Secret // of that overlay
}

// lacks says why a script cannot have its secrets.
func (i *Item) lacks(w spec.Exec) string {
	for _, name := range w.SecretNames() {
		if i.secrets.Lacks == nil {
			return "no key"
		}
		if why := i.secrets.Lacks(name); why != "" {
			return why
		}
	}
	return ""
}

// identityOf says what a script's secrets were sealed as: one that is given another value is
// another script. The values themselves are in nobody's identity.
func identityOf(w spec.Exec, secrets []spec.Secret) (list []string) {
	for _, name := range w.SecretNames() {
		sealed := ""
		if n := slices.IndexFunc(secrets, func(s spec.Secret) bool { return s.Name == name }); n >= 0 {
			sealed = digest.Of([]byte(secrets[n].Sealed))
		}
		list = append(list, name+" "+sealed)
	}
	return append(list, environ(w.SecretEnv)...)
}

// files are the files of a script's variables that are secrets. A revert script goes without
// those that are gone.
func (i *Item) files(w spec.Exec) map[string]string {
	files := map[string]string{}
	for variable, name := range w.SecretEnv {
		file := filepath.Join(i.secrets.Dir, name)
		if _, err := os.Lstat(file); err == nil || i.lacks(w) == "" {
			files[variable] = file
		}
	}
	return files
}
