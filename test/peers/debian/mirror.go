// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Mirror returns the URL of the host's own mirror of Debian, as http://mirror.example.org/debian.
// That of the security archive ends with -security.
func Mirror() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for the host's mirror: %w", err)
	}
	for uri := range strings.Lines(string(out)) {
		if uri = strings.TrimRight(uri, "/\n"); strings.HasSuffix(uri, "/debian") {
			return uri, nil
		}
	}
	return "", errors.New("the host's sources of apt name no mirror of Debian")
}
