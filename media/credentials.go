// SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// secret is how names of arguments look whose values are not for everybody.
var secret = regexp.MustCompile(`(?i)(passw|passphrase|secret|token|credential|api[._-]?key)`)

// Credentials lists what looks like one in a bootstrap and in the arguments of a loader's
// kernel, without its value: whoever holds a medium can read it.
func Credentials(b spec.Bootstrap, args []string) (found []string) {
	for _, arg := range append(append([]string{}, b.KernelArgs...), args...) {
		if name, value, ok := strings.Cut(arg, "="); ok && value != "" && (secret.MatchString(name) || hasUser(value)) {
			found = append(found, "kernel argument "+name)
		}
	}
	for _, place := range []struct{ name, url string }{{"the proxy", b.Proxy}, {"the URL of reports", b.Hints}} {
		if hasUser(place.url) {
			found = append(found, "a password in "+place.name)
		}
	}
	return found
}

// hasUser reports whether a text is a URL with a user.
func hasUser(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User != nil
}
