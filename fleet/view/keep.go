// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// maxKept bounds a value that is offered to be kept, in bytes: a line is to be read.
const maxKept = 200

// plainKey is a key that YAML takes without quotes.
var plainKey = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]*$`)

// Keep returns the line of a site, below conf:, by which what a node has would be what is wanted of
// it, so that nothing drifts. It is "" where no line says that: nothing is there, the value is not
// the kernel's own text, or it is of a kind whose entries are more than a value.
func Keep(d spec.Drift) string {
	value := strings.Join(strings.Fields(d.From), " ") // sysctl(8) has tabs between the parts of a value
	if value == "" || len(value) > maxKept {
		return ""
	}
	path := []string{d.Key}
	switch d.Item {
	case "sysctl":
	case "ethtool":
		path = strings.Split(d.Key, "/")
		if len(path) != 2 || value != "on" && value != "off" {
			return ""
		}
	case "nics":
		if path = strings.Split(d.Key, "/"); len(path) != 3 {
			return ""
		}
	default:
		return ""
	}
	line, end := d.Item+": ", ""
	for _, key := range path {
		if !plainKey.MatchString(key) {
			key = inQuotes(key)
		}
		line, end = line+"{"+key+": ", end+"}"
	}
	return line + inQuotes(value) + end
}

// inQuotes returns a text as YAML has it in double quotes, which is as JSON has it.
func inQuotes(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return fmt.Sprintf("%q", text) // no string does that
	}
	return string(quoted)
}
