// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/url"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Times between the reports of a node on which nothing changes.
const (
	LeastToStore  = time.Hour // to a registry: each report stays there until that is swept
	LongestReport = 24 * time.Hour
)

// A node looks at itself each minute, and asks the registry with a look. One that asks less
// often than fleet:current is fresh for would call what it knows too old.
const (
	shortestPoll = time.Minute
	longestPoll  = 24 * time.Hour
)

// Poll checks how many seconds lie between questions to the registry.
func Poll(every int64) error {
	if every < int64(shortestPoll/time.Second) || every > int64(longestPoll/time.Second) {
		return invalid("range", "", "the registry is asked every %s to %s, not every %d s", shortestPoll, longestPoll, every)
	}
	return nil
}

// Reporting checks where a node's reports go, and how often.
func Reporting(r spec.Reporting) error {
	var f fields
	switch {
	case (r.URL == "") == (r.Registry == ""):
		f.add("", invalid("report", "url of the fleet's service, or registry where there is none", "set either url or registry"))
	case r.URL != "":
		f.add("url", reportURL(r.URL))
	default:
		f.add("registry", reportRegistry(r.Registry))
	}
	switch {
	case r.Interval <= 0:
		f.add("interval", invalid("range", "", "the time between two reports is more than 0"))
	case r.Registry != "" && r.Interval < int64(LeastToStore/time.Second):
		f.add("interval", invalid("range", "changes of what runs, of health and of sync are reported immediately", "to a registry once in %s at most", LeastToStore))
	case r.Interval > int64(LongestReport/time.Second):
		f.add("interval", invalid("range", "", "the time between two reports is at most a day"))
	}
	return f.err()
}

// reportURL says whether reports may be sent there. A name and a password would stand
// in the overlay, which whoever may read the registry reads.
func reportURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || strings.ContainsAny(text, " \t\r\n"):
		return invalid("url", "as in https://fleet.example:8443", "%q is not a URL", text)
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("url", "as in https://fleet.example:8443", "%q is neither https nor http", text)
	case u.User != nil:
		return invalid("url", "what the service asks of a node is a file of the node", "the URL holds a user or a password, and everyone can read it")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return invalid("url", "", "%q has more than a host and a path", text)
	}
	return nil
}
