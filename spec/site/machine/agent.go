// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"reflect"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type agentDoc struct {
	Poll    shape.Duration `site:"poll" doc:"time between questions to the registry; 5m when absent"`
	Report  *reportDoc     `site:"report" doc:"where the node's reports go"`
	Metrics *spec.Metrics  `site:"metrics" doc:"where the node's metrics can be read"`
	Policy  policyDoc      `site:"policy" doc:"what the agent does about a setting that somebody has changed on the node, by kind"`

	Credentials *spec.Credentials `site:"credentials" doc:"secrets with which the agent authenticates, in place of those that the node was installed with"`
}

// usualInterval is between two reports to a service: a fleet of ten thousand sends some
// thirty a second.
const usualInterval = 5 * time.Minute

// reportDoc has the name of its key in the schema.
type reportDoc spec.Reporting

// compileAgent returns nil where nothing is said.
func compileAgent(c *shape.Checker, v *tree.Value, d agentDoc) *spec.Agent {
	a := spec.Agent{Poll: int64(d.Poll.D / time.Second), Report: (*spec.Reporting)(d.Report), Metrics: d.Metrics}
	if d.Poll.Set() {
		c.Valid(d.Poll.At, rules.Poll(a.Poll))
	}
	if c.At(v, "report") == (report.Pos{}) {
		a.Report = nil
	} else {
		c.In("report", func() { checkReport(c, v.Get("report"), a.Report) })
	}
	if c.At(v, "metrics") == (report.Pos{}) {
		a.Metrics = nil
	} else {
		c.In("metrics", func() { c.ValidIn(c.At(v, "metrics"), v.Get("metrics"), rules.Metrics(*a.Metrics)) })
	}
	c.In("policy", func() { a.Enforce = compileEnforce(c, d.Policy) })
	if d.Credentials != nil {
		c.In("credentials", func() { a.Credentials = checkCredentials(c, v.Get("credentials"), d.Credentials, a.Report != nil) })
	}
	if reflect.ValueOf(a).IsZero() {
		return nil
	}
	return &a
}

// checkCredentials does not know which secrets there are: package module does. It returns nil
// where none is named.
func checkCredentials(c *shape.Checker, v *tree.Value, d *spec.Credentials, reports bool) *spec.Credentials {
	registry, own := c.At(v, "registry"), c.At(v, "report")
	if registry == (report.Pos{}) && own == (report.Pos{}) {
		return nil
	}
	if registry != (report.Pos{}) {
		c.Valid(registry, rules.Secret(d.Registry))
	}
	if own != (report.Pos{}) {
		c.Valid(own, rules.Secret(d.Report))
		if !reports {
			c.Errorf(own, "no-report", "machine.agent.report says where to: name its url or registry, or take report out of credentials", "nothing uses it: the node sends no reports")
		}
	}
	return d
}

func checkReport(c *shape.Checker, v *tree.Value, r *spec.Reporting) {
	if c.At(v, "interval") == (report.Pos{}) {
		r.Interval = int64(usualInterval / time.Second)
		if c.At(v, "registry") != (report.Pos{}) {
			r.Interval = int64(rules.LeastToStore / time.Second)
		}
	}
	r.URL = strings.TrimRight(r.URL, "/")
	if c.ValidIn(c.At(v), v, rules.Reporting(*r)) && strings.HasPrefix(r.URL, "http:") {
		c.Warnf(c.At(v, "url"), "plain-http", "use https", "reports are sent unencrypted: signed, but everyone on the way can read them")
	}
}
