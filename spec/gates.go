// SPDX-License-Identifier: Apache-2.0

package spec

// Gates decide whether a change has done what it should: until they are passed, it
// does not count as good; where one fails, what ran before comes back.
type Gates struct {
	Checks []HealthCheck `json:"checks"` // sorted by name
}

// HealthCheck is one thing to look at. It is looked at again and again until it has
// held for the time of Soak, or has failed more than Retries times. One of Command,
// Unit, TCP, HTTP and File is set.
type HealthCheck struct {
	Name     string   `json:"name"`
	Command  []string `json:"command,omitempty"` // exit code 0; the first one is an absolute path
	Unit     string   `json:"unit,omitempty"`    // is active, and stays so
	TCP      string   `json:"tcp,omitempty"`     // host:port takes a connection
	HTTP     string   `json:"http,omitempty"`    // a URL answers with Status
	Status   int      `json:"status,omitempty"`  // 0 is any from 200 to 299
	File     string   `json:"file,omitempty"`    // exists
	Timeout  int64    `json:"timeout"`           // seconds that one look may take
	Interval int64    `json:"interval"`          // seconds between two looks
	Retries  int64    `json:"retries,omitempty"` // failures that are waited out
	Soak     int64    `json:"soak,omitempty"`    // seconds for which it must hold without a failure
	Watch    bool     `json:"watch,omitempty"`   // it goes on being looked at, and the node is degraded while it does not hold
}
