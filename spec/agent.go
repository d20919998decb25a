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

// Gates decide whether a change has done what it should: until they are passed, it
// does not count as good; where one fails, what ran before comes back.
type Gates struct {
	Checks []HealthCheck `json:"checks"` // sorted by name
}

// HealthCheck is one thing to look at. It is looked at again and again until it has
// held for the time of Soak, or has failed more than Retries times. One of Command,
// Unit, TCP, HTTP and File is set.
type HealthCheck struct {
	Name    string   `json:"name" site:",required" doc:"name of the check, unique in this list"`
	Command []string `json:"command,omitempty" site:",block" doc:"program, by its absolute path, and arguments; the check passes with exit code 0; no shell runs it"`
	Unit    string   `json:"unit,omitempty" doc:"unit that must be active, as in kubelet.service"`
	TCP     string   `json:"tcp,omitempty" doc:"address that must accept a connection, as in 127.0.0.1:6443"`
	HTTP    string   `json:"http,omitempty" doc:"URL that must answer, as in http://127.0.0.1:10248/healthz"`
	// 0 is any from 200 to 299
	Status int    `json:"status,omitempty" doc:"HTTP status of the answer; any from 200 to 299 when absent"`
	File   string `json:"file,omitempty" doc:"file that must exist, as in /run/ready"`
	// seconds that one look may take
	Timeout int64 `json:"timeout" site:",duration" doc:"time for one look; 10s when absent, at most 10m"`
	// seconds between two looks
	Interval int64 `json:"interval" site:",duration" doc:"time between two looks; 10s when absent, at most 1h"`
	// failures that are waited out
	Retries int64 `json:"retries,omitempty" doc:"number of failures before the check fails; 30 when absent, at most 1000"`
	// seconds for which it must hold without a failure
	Soak  int64 `json:"soak,omitempty" site:",pause" doc:"how long the check must pass without a failure; one pass is enough when absent, at most 1d"`
	Watch bool  `json:"watch,omitempty" doc:"the check goes on after the change, and the node is degraded while it fails"`
}
