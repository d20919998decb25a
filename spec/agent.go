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
	Registry string `json:"registry,omitempty" doc:"name of the secret with which the node reads its registry: docker's config.json"`
	Report   string `json:"report,omitempty" doc:"name of the secret that is the token for its reports; for those to a registry, docker's config.json"`
}

// Reporting is where a node's reports go, see [Report]. Either URL is set or Registry.
type Reporting struct {
	// of the fleet's service, which is sent them by POST
	URL      string `json:"url,omitempty" doc:"URL of the fleet's service"`
	Registry string `json:"registry,omitempty" doc:"host[:port]/prefix of a registry, where report:NODE is the last report; in place of url"`
	// seconds between reports of a node on which nothing changes
	Interval int64 `json:"interval" site:",duration" doc:"time between reports of a node on which nothing changes; 5m when absent, and 1h to a registry"`
}

// String is where reports go, for people.
func (r Reporting) String() string { return cmp.Or(r.URL, r.Registry) }

// Metrics is where a node's figures can be read, as Prometheus reads them. One
// of the two is set, or both.
type Metrics struct {
	// of the textfile collector of node_exporter: absolute, ends in .prom
	File   string `json:"file,omitempty" doc:"file for the textfile collector of node_exporter"`
	Listen string `json:"listen,omitempty" doc:"address and port of the loopback interface"`
}
