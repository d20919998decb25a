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
)

type agentDoc struct {
	Poll    shape.Duration `site:"poll" doc:"time between questions to the registry; 5m when absent"`
	Report  reportDoc      `site:"report" doc:"where the node's reports go"`
	Metrics metricsDoc     `site:"metrics" doc:"where the node's metrics can be read"`
	Policy  policyDoc      `site:"policy" doc:"what the agent does about a setting that somebody has changed on the node, by kind"`

	Credentials credentialsDoc `site:"credentials" doc:"secrets with which the agent authenticates, in place of those that the node was installed with"`
}

type credentialsDoc struct {
	Registry shape.Text `site:"registry" doc:"name of the secret with which the node reads its registry: docker's config.json"`
	Report   shape.Text `site:"report" doc:"name of the secret that is the token for its reports; for those to a registry, docker's config.json"`
	At       report.Pos
}

type reportDoc struct {
	URL      shape.Text     `site:"url" doc:"URL of the fleet's service"`
	Registry shape.Text     `site:"registry" doc:"host[:port]/prefix of a registry, where report:NODE is the last report; in place of url"`
	Interval shape.Duration `site:"interval" doc:"time between reports of a node on which nothing changes; 5m when absent, and 1h to a registry"`
	At       report.Pos
}

type metricsDoc struct {
	File   shape.Text `site:"file" doc:"file for the textfile collector of node_exporter"`
	Listen shape.Text `site:"listen" doc:"address and port of the loopback interface"`
	At     report.Pos
}

// usualInterval is between two reports to a service: a fleet of ten thousand sends some
// thirty a second.
const usualInterval = 5 * time.Minute

// compileAgent returns nil where nothing is said.
func compileAgent(c *shape.Checker, d agentDoc) *spec.Agent {
	var a spec.Agent
	if d.Poll.Set() {
		a.Poll = int64(d.Poll.D / time.Second)
		c.Valid(d.Poll.At, rules.Poll(a.Poll))
	}
	c.In("report", func() { a.Report = compileReport(c, d.Report) })
	c.In("metrics", func() { a.Metrics = compileMetrics(c, d.Metrics) })
	c.In("policy", func() { a.Enforce = compileEnforce(c, d.Policy) })
	c.In("credentials", func() { a.Credentials = compileCredentials(c, d.Credentials, a.Report != nil) })
	if reflect.ValueOf(a).IsZero() {
		return nil
	}
	return &a
}

// compileCredentials does not know which secrets there are: package module does.
func compileCredentials(c *shape.Checker, d credentialsDoc, reports bool) *spec.Credentials {
	if !d.Registry.Set() && !d.Report.Set() {
		return nil
	}
	for _, name := range []shape.Text{d.Registry, d.Report} {
		if name.Set() {
			c.Valid(name.At, rules.Secret(name.S))
		}
	}
	if d.Report.Set() && !reports {
		c.Errorf(d.Report.At, "no-report", "machine.agent.report says where to: name its url or registry, or take report out of credentials", "nothing uses it: the node sends no reports")
	}
	return &spec.Credentials{Registry: d.Registry.S, Report: d.Report.S}
}

func compileReport(c *shape.Checker, d reportDoc) *spec.Reporting {
	if d.At == (report.Pos{}) {
		return nil
	}
	every := usualInterval
	if d.Registry.Set() {
		every = rules.LeastToStore
	}
	if d.Interval.Set() {
		every = d.Interval.D
	}
	r := spec.Reporting{URL: strings.TrimRight(d.URL.S, "/"), Registry: d.Registry.S, Interval: int64(every / time.Second)}
	places := map[string]report.Pos{"url": d.URL.At, "registry": d.Registry.At, "interval": d.Interval.At}
	if c.ValidFields(d.At, places, rules.Reporting(r)) && strings.HasPrefix(r.URL, "http:") {
		c.Warnf(d.URL.At, "plain-http", "use https", "reports are sent unencrypted: signed, but everyone on the way can read them")
	}
	return &r
}

func compileMetrics(c *shape.Checker, d metricsDoc) *spec.Metrics {
	if d.At == (report.Pos{}) {
		return nil
	}
	m := spec.Metrics{File: d.File.S, Listen: d.Listen.S}
	c.ValidFields(d.At, map[string]report.Pos{"file": d.File.At, "listen": d.Listen.At}, rules.Metrics(m))
	return &m
}
