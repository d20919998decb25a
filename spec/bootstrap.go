// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// Bootstrap names whom a node trusts and where it asks; everything else arrives
// signed. A loader has it from site.cpio, a host that caisson did not boot from
// 'caisson-agent enroll'.
type Bootstrap struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // KindBootstrap
	Fleet      string   `json:"fleet"`
	Registry   string   `json:"registry"`            // host[:port]/prefix
	Mirrors    []string `json:"mirrors,omitempty"`   // asked in order after Registry
	PlainHTTP  bool     `json:"plainHTTP,omitempty"` // content is signed; TLS hides it from onlookers
	Proxy      string   `json:"proxy,omitempty"`     // URL of an HTTP proxy on the way
	CAs        []string `json:"cas,omitempty"`       // PEM; empty is the loader's own store
	Keys       []string `json:"keys"`                // operator public keys, SPKI PEM
	Threshold  int      `json:"threshold"`           // distinct keys that must have signed, at least 1
	EpochKeys  []string `json:"epochKeys,omitempty"` // keys that alone may raise the epoch
	KernelArgs []string `json:"kernelArgs,omitempty"`
	Node       string   `json:"node,omitempty"`      // name of the one node that this is for: an enrolled host
	Hints      string   `json:"hints,omitempty"`     // URL of the fleet's service, which hears that nothing boots: see [Hint]
	StateDisk  string   `json:"stateDisk,omitempty"` // partition UUID, lower case; empty: the fixed partition named caisson-state

	NewStateDisk *NewStateDisk `json:"newStateDisk,omitempty"` // what to make of an empty disk where there is no state disk
	// a loader is wanted on the state disk, which the agent puts there; 0.9 puts none there, and says
	// so
	BootFromDisk bool `json:"bootFromDisk,omitempty"`

	Network []BootNetwork `json:"network,omitempty"` // how the loader reaches the registry, by what cards are there
	Nodes   []BootNode    `json:"nodes,omitempty"`   // since 0.10.0 with boot-network: and on nodes without DHCP

	// since 0.10.0 with key-chain: document of the version of fleet:keys that this was made with;
	// later ones count once they are seen, in place of Keys, Threshold and EpochKeys
	Chain []byte `json:"chain,omitempty"`

	Needs []string `json:"needs,omitempty"` // features that each reader must know, sorted; see Features
}

// NewStateDisk says which empty disk becomes a node's state disk. A reader that does not
// know one of its keys makes none: the key may exclude the disk that it would erase.
type NewStateDisk struct {
	Disks   []string `json:"disks,omitempty"`   // serial numbers or WWNs; empty: the one fixed disk that is empty
	AtLeast int64    `json:"atLeast,omitempty"` // bytes
}

// DecodeBootstrap is [DecodeKnown] for a Bootstrap. A need that is not known is an error.
// NewStateDisk, and a row of Network or Nodes by its Match, say what is meant by all that is set
// together: one with a key of a later release is left out as a whole. notes are lines that
// say what was left out.
func DecodeBootstrap(data []byte) (b Bootstrap, notes []string, err error) {
	var first struct {
		Needs []string `json:"needs"`
	}
	if json.Unmarshal(data, &first) == nil { // else the decoding below says what is wrong
		if missing := Missing(first.Needs, Features()); missing != nil {
			return b, nil, lack{"it needs " + strings.Join(missing, ", ") + ", which this release does not know",
				"use the loader or agent of the release that wrote it"}
		}
	}
	unknown, err := DecodeKnown(data, &b)
	if err != nil || unknown == nil {
		return b, nil, err
	}
	var whole struct {
		NewStateDisk json.RawMessage `json:"newStateDisk"`
		Network      []matched       `json:"network"`
		Nodes        []matched       `json:"nodes"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return b, nil, err
	}
	if whole.NewStateDisk != nil {
		keys, err := DecodeKnown(whole.NewStateDisk, new(NewStateDisk))
		if err != nil {
			return b, nil, err
		}
		if keys != nil {
			b.NewStateDisk = nil
			notes = append(notes, fmt.Sprintf("newStateDisk has %s of a later release: no disk is erased", strings.Join(keys, ", ")))
		}
	}
	if b.Network, notes, err = known("network", whole.Network, b.Network, notes); err != nil {
		return b, nil, err
	}
	if b.Nodes, notes, err = known("nodes", whole.Nodes, b.Nodes, notes); err != nil {
		return b, nil, err
	}
	var rest []string
	for _, path := range unknown {
		if !strings.HasPrefix(path, "newStateDisk.") && !strings.HasPrefix(path, "network[].match.") &&
			!strings.HasPrefix(path, "nodes[].match.") {
			rest = append(rest, path)
		}
	}
	if rest != nil {
		notes = append(notes, LeftOut(rest))
	}
	return b, notes, nil
}

// matched is a row of which only its match is read.
type matched struct {
	Match json.RawMessage `json:"match"`
}

// known returns the rows in whose match each key is known.
func known[R any](name string, raw []matched, rows []R, notes []string) ([]R, []string, error) {
	var kept []R
	for i, row := range raw {
		keys, err := DecodeKnown(row.Match, new(BootMatch))
		if err != nil {
			return nil, nil, err
		}
		if keys != nil {
			notes = append(notes, fmt.Sprintf("%s[%d].match has %s of a later release: it matches no card", name, i, strings.Join(keys, ", ")))
			continue
		}
		kept = append(kept, rows[i])
	}
	return kept, notes, nil
}

// Agent holds the settings of a node's agent itself.
type Agent struct {
	Poll    int64         `json:"poll,omitempty"` // seconds between questions to the registry; 0 for the usual five minutes
	Report  *Reporting    `json:"report,omitempty"`
	Metrics *Metrics      `json:"metrics,omitempty"`
	Enforce []Enforcement `json:"enforce,omitempty"` // what is done about drift, sorted by item and key

	Credentials *Credentials `json:"credentials,omitempty"` // since 0.10.0: in place of those that the node was installed with
}

// Credentials are the names of secrets that the agent itself shows to others. One that is not
// sealed to the node, or that is refused, does not count: the node goes on with what it was installed with.
type Credentials struct {
	Registry string `json:"registry,omitempty" doc:"name of the secret with which the node reads its registry: docker's config.json"`
	Report   string `json:"report,omitempty" doc:"name of the secret with the token for its reports; to a registry, docker's config.json"`
}

// Reporting is where a node's reports go, see [Report]. Either URL is set or Registry.
type Reporting struct {
	// of the fleet's service, which is sent them by POST
	URL      string `json:"url,omitempty" doc:"URL of the fleet's service"`
	Registry string `json:"registry,omitempty" doc:"host[:port]/prefix of a registry, where report:NODE is the last report; in place of url"`
	// seconds between reports of a node on which nothing changes
	Interval int64 `json:"interval" site:",duration" doc:"time between reports while nothing changes; 5m when absent, and 1h to a registry"`
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

// Gates decide whether a change works: until they are passed, it
// does not count as good; where one fails, what ran before comes back.
type Gates struct {
	Checks []HealthCheck `json:"checks"` // sorted by name
}

// HealthCheck is one thing to look at. It is looked at again and again until it has
// held for the time of Soak, or has failed more than Retries times. One of Command,
// Unit, TCP, HTTP and File is set.
type HealthCheck struct {
	Name    string   `json:"name" site:",required" doc:"name of the check, unique in this list"`
	Command []string `json:"command,omitempty" site:",block" doc:"program, by its absolute path, and arguments, without a shell; 0 passes"`
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
	Soak  int64 `json:"soak,omitempty" site:",pause" doc:"how long it must pass without a failure; one pass is enough when absent, at most 1d"`
	Watch bool  `json:"watch,omitempty" doc:"the check goes on after the change, and the node is degraded while it fails"`
}
