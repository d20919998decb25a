// SPDX-License-Identifier: Apache-2.0

package spec

import "cmp"

// Agent says how the agent of a node works, beside what it sets.
type Agent struct {
	Poll    int64         `json:"poll,omitempty"` // seconds between questions to the registry; 0 for the usual five minutes
	Report  *Reporting    `json:"report,omitempty"`
	Metrics *Metrics      `json:"metrics,omitempty"`
	Enforce []Enforcement `json:"enforce,omitempty"` // what is done about drift, sorted by item and key

	Credentials *Credentials `json:"credentials,omitempty"` // in place of those that the node was installed with
}

// Credentials are the names of secrets that the agent itself shows to others. One that is not
// sealed to the node, or that is refused, does not count: the node goes on with what it was installed with.
type Credentials struct {
	Registry string `json:"registry,omitempty"` // what reads the fleet's registry, in the form of docker's config.json
	Report   string `json:"report,omitempty"`   // the token for reports to the fleet's service; of a registry of reports, docker's config.json
}

// Reporting is where a node's reports go, see [Report]. Either URL is set or Registry.
type Reporting struct {
	URL      string `json:"url,omitempty"`      // of the fleet's service, which is sent them by POST
	Registry string `json:"registry,omitempty"` // host[:port]/prefix of a registry, where report:NODE is the last one
	Interval int64  `json:"interval"`           // seconds between reports of a node on which nothing changes
}

// String is where reports go, for people.
func (r Reporting) String() string { return cmp.Or(r.URL, r.Registry) }

// Metrics is where a node's figures can be read, as Prometheus reads them. One
// of the two is set, or both.
type Metrics struct {
	File   string `json:"file,omitempty"`   // of the textfile collector of node_exporter: absolute, ends in .prom
	Listen string `json:"listen,omitempty"` // address and port of the loopback interface
}
