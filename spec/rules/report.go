// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"regexp"
	"strings"
)

// ReportURL says whether reports may be sent there. A name and a password would stand
// in the overlay, which whoever may read the registry reads.
func ReportURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || strings.ContainsAny(text, " \t\r\n"):
		return invalid("url", "as in https://fleet.example:8443", "%q is not an address of the web", text)
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("url", "as in https://fleet.example:8443", "%q is reached by neither https nor http", text)
	case u.User != nil:
		return invalid("url", "what the service asks of a node is a file of the node", "an address with a name or a password is for all to read")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return invalid("url", "", "%q has more than a host and a path", text)
	}
	return nil
}

var registryPrefix = regexp.MustCompile(`^/[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// ReportRegistry says whether reports may be put there. A layout is a directory of one
// machine, and a tag is each node's own.
func ReportRegistry(text string) error {
	u, err := url.Parse("https://" + text)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") || text != u.Host+u.Path || !registryPrefix.MatchString(u.Path) {
		return invalid("registry", "as in registry.example.org:5000/metal-a", "%q is not host[:port]/prefix of a registry", text)
	}
	return nil
}
