// SPDX-License-Identifier: Apache-2.0

// Package cluster spells a site as objects of Kubernetes. What stands in files may stand
// in objects of the same kinds, field by field, in one namespace.
//
// [Definitions] makes the CustomResourceDefinitions from the documents' own shapes.
// [Reader.Parse] reads objects as it would files: each is a file beside the keys, so package site
// decides alone what they mean. Two things differ. Whatever reads or runs something where
// it is published is refused in an object, see [Refused]: who may write objects must not
// read the publisher's files. And JSON has numbers and booleans where YAML as caisson
// reads it has text: [Check] finds what kubectl would send as another value.
//
// It knows no API server: objects are plain data. The command line and caisson-kube
// import it.
package cluster

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// The API group of all kinds, and the version that is served and stored.
const (
	Group   = "caisson.dev"
	Version = "v1alpha1"
)

// Kinds of the cluster alone.
const (
	FleetNode       = "FleetNode"
	PublishApproval = "PublishApproval"
)

// Site is the kind of which a namespace has one object.
var Site = shape.Kind[document.Site]()

// NodeMaintenance is the kind of which nodes run the operations.
var NodeMaintenance = shape.Kind[maintenance.NodeMaintenanceDoc]()

// Kind is a kind of object.
type Kind struct {
	Kind   string
	Plural string
	Doc    bool // it is a document of a site; else of the cluster alone

	about    string // one line for kubectl explain
	columns  []column
	wide     []column       // with -o wide
	defaults map[string]any // that the API server fills in, by their paths; they mean what leaving them out means
	schema   node
}

// column describes a column that kubectl get prints.
type column struct{ name, kind, path string }

var (
	valid = column{"Valid", "string", `.status.conditions[?(@.type=="Valid")].status`}
	why   = column{"Message", "string", `.status.conditions[?(@.type=="Valid")].message`}
	age   = column{"Age", "date", ".metadata.creationTimestamp"}
)

// table has what shapes do not say of a kind.
var table = []Kind{
	{Kind: Site, about: "A fleet: its machines and what they are configured to be. A namespace has one.", columns: []column{
		{"Valid", "string", valid.path}, {"Planned", "string", `.status.conditions[?(@.type=="Planned")].reason`},
		{"Published", "string", ".status.generation"}, {"Message", "string", ".status.message"}, age},
		defaults: map[string]any{"layer.arch": "amd64", "trust.onExpired": "run"}},
	{Kind: shape.Kind[maintenance.NodeSetDoc](), about: "Nodes by their labels and names.", columns: []column{valid, why, age}},
	{Kind: shape.Kind[maintenance.WindowDoc](), about: "When nodes may be disturbed.",
		columns:  []column{{"Zone", "string", ".spec.timeZone"}, {"Duration", "string", ".spec.duration"}, valid, why, age},
		defaults: map[string]any{"spec.onClose": "finish"}},
	{Kind: shape.Kind[maintenance.NodeMaintenanceDoc](), about: "What nodes do over time, and when.",
		columns: []column{{"Nodes", "string", ".spec.nodes"}, {"Windows", "string", ".spec.windows"}, valid, why, age}},
	{Kind: shape.Kind[maintenance.TemplateDoc](), about: "An operation that a NodeMaintenance names.", columns: []column{valid, why, age}},
	{Kind: shape.Kind[waves.RolloutDoc](), about: "In which waves a change reaches its nodes.", columns: []column{valid, why, age}},
	{Kind: shape.Kind[service.ServiceDoc](), about: "Files that nodes have from git, for a unit of systemd.",
		columns: []column{{"Repository", "string", ".spec.git.url"}, valid, why, age}},
	{Kind: FleetNode, about: "What a node of the fleet reports. It is written by caisson-kube, from the fleet's service.", columns: []column{
		{"Condition", "string", ".status.condition"}, {"Since", "date", ".status.since"},
		{"Generation", "string", ".status.generation"}, {"Layer", "string", ".status.layer"},
		{"Health", "string", ".status.health"}, {"Sync", "string", ".status.sync"},
		{"Activity", "string", ".status.activity"}, {"Message", "string", ".status.message"}},
		wide: []column{{"Tracking", "string", ".status.tracking"}, {"Operation", "string", ".status.operation"}}},
	{Kind: PublishApproval, about: "An operator's word that one plan may be published.",
		columns: []column{{"Plan", "string", ".spec.plan"}, {"Author", "string", ".spec.author"}, age}},
}

// kinds returns the kinds with their schemas.
var kinds = sync.OnceValue(func() []Kind {
	out := append([]Kind(nil), table...)
	for i := range out {
		k := &out[i]
		k.Plural = strings.ToLower(k.Kind) + "s"
		var err error
		if k.schema, err = documentSchema(strings.ToLower(k.Kind)); err == nil {
			k.Doc = true
		} else if k.schema, err = clusterSchema(k.Kind); err != nil {
			panic(err) // a shape that no structural schema is made for: a test writes all of them out
		}
	}
	return out
})

// Kinds returns all kinds: those of a site's documents first.
func Kinds() []Kind { return append([]Kind(nil), kinds()...) }

// fleetNodeDoc is a FleetNode, as it is written: nothing but what was seen.
type fleetNodeDoc struct {
	Kind   shape.Text      `site:"kind" enum:"FleetNode"`
	Status FleetNodeStatus `site:"status" doc:"what the fleet's service reports of the node"`
}

// FleetNodeStatus is written by caisson-kube.
type FleetNodeStatus struct {
	Condition  string `json:"condition" doc:"the worst condition of the node, in one word, as 'caisson fleet status' shows it"`
	Trouble    bool   `json:"trouble" doc:"whether somebody should look at the node"`
	Message    string `json:"message" doc:"why the node is in this condition"`
	Since      string `json:"since" doc:"when the condition began, as far as caisson-kube saw it"`
	Generation int64  `json:"generation" doc:"generation that the node runs"`
	Published  int64  `json:"published" doc:"generation that is published for it"`
	Layer      string `json:"layer" doc:"version of the system layer that it runs"`
	Agent      string `json:"agent" doc:"release of its agent"`
	Tracking   string `json:"tracking" doc:"following, frozen or held"`
	Sync       string `json:"sync" doc:"whether the node has the generation that is published"`
	Health     string `json:"health" doc:"state of the node's health"`
	Activity   string `json:"activity" doc:"what the node does now, or waits for"`
	Operation  string `json:"operation" doc:"the operation that ended last, and its result"`
	Ended      string `json:"ended" doc:"when that operation ended, by the node's clock"`
}

// publishApprovalDoc is a PublishApproval, as it is written.
type publishApprovalDoc struct {
	Kind shape.Text   `site:"kind" enum:"PublishApproval"`
	Spec ApprovalSpec `site:"spec,required"`
}

// clusterSchema returns the schema of a kind that is not a document of a site.
func clusterSchema(kind string) (node, error) {
	first := shape.Document{Type: reflect.TypeFor[fleetNodeDoc](), Whole: true}
	if kind == PublishApproval {
		first.Type = reflect.TypeFor[publishApprovalDoc]()
	}
	text, err := shape.Schema("", kind, false, first)
	if err != nil {
		return nil, err
	}
	return structural(text)
}

// IsKind reports whether objects of a kind are a site's documents.
func IsKind(kind string) bool {
	return slices.ContainsFunc(kinds(), func(k Kind) bool { return k.Kind == kind && k.Doc })
}
