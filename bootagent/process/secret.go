// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// maxSecret is what a kernel takes of one variable: MAX_ARG_STRLEN, see execve(2).
const maxSecret = 128 << 10

// withSecrets adds variables to an environment whose values are in files, by their names. It
// is called as late as can be, by the process that becomes the program: no file, no service of
// systemd and no argument has the values. What editors end a file with is not a part of one.
func withSecrets(env []string, files map[string]string) ([]string, error) {
	env = slices.Clone(env)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		value, err := ownfiles.ReadFile(files[name], maxSecret)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		text := strings.TrimSuffix(string(value), "\n")
		if strings.Contains(text, "\x00") {
			return nil, fmt.Errorf("variable %s: its secret has a NUL, which no variable can have", name)
		}
		env = append(env, name+"="+text)
	}
	return env, nil
}
