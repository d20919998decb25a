// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what this program does. How the fleet's nodes are is counted by the fleet's service, and
// how requests and queues are by controller-runtime's own metrics; here is what neither knows.
type metrics struct {
	looks     *prometheus.HistogramVec
	sites     *prometheus.GaugeVec
	published *prometheus.GaugeVec
	answers   *prometheus.HistogramVec
	writes    *prometheus.CounterVec
	drains    *prometheus.CounterVec
}

// seconds are the bounds of what is measured: from an answer in memory to a look that waits
// for a registry.
var seconds = []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 10, 60, 600}

// newMetrics returns metrics that are registered.
func newMetrics(with prometheus.Registerer) (*metrics, error) {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "caisson_kube_" + name, Help: help, Buckets: seconds}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "caisson_kube_" + name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "caisson_kube_" + name, Help: help}, labels)
	}
	m := &metrics{
		looks:     histogram("look_seconds", "Looks at a namespace, and how long they took. The result is ok or failed.", "namespace", "result"),
		sites:     gauge("site_condition", "Conditions of the Site of a namespace: 1 where one is True.", "namespace", "condition"),
		published: gauge("published_generation", "Generation of the fleet that is published.", "namespace"),
		answers: histogram("admission_seconds", "Questions of API servers, and how long an answer took. The verdict is "+
			"allowed, refused or failed.", "verdict"),
		writes: counter("writes_total", "Objects that were written to show the fleet's nodes, by kind.", "namespace", "kind"),
		drains: counter("drains_total", "Nodes that were drained, or could not be.", "result"),
	}
	for _, c := range []prometheus.Collector{m.looks, m.sites, m.published, m.answers, m.writes, m.drains} {
		if err := with.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Looked counts a look at a namespace.
func (m *metrics) Looked(namespace string, took time.Duration, err error) {
	m.looks.WithLabelValues(namespace, result(err)).Observe(took.Seconds())
}

// Site notes the conditions of a namespace's Site, and the generation that is published; it
// is not known where it is 0. Without conditions the namespace has no Site.
func (m *metrics) Site(namespace string, conditions map[string]bool, generation int64) {
	m.sites.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	m.published.DeleteLabelValues(namespace)
	for name, holds := range conditions {
		value := 0.0
		if holds {
			value = 1
		}
		m.sites.WithLabelValues(namespace, name).Set(value)
	}
	if generation > 0 {
		m.published.WithLabelValues(namespace).Set(float64(generation))
	}
}

// Answered counts an answer to an API server.
func (m *metrics) Answered(verdict string, took time.Duration) {
	m.answers.WithLabelValues(verdict).Observe(took.Seconds())
}

// Wrote counts an object that was written.
func (m *metrics) Wrote(namespace, kind string) { m.writes.WithLabelValues(namespace, kind).Inc() }

// Drained counts a Node that was drained, or could not be.
func (m *metrics) Drained(err error) { m.drains.WithLabelValues(result(err)).Inc() }

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}
