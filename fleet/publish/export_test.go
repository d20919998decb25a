// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/spec"
)

// What tests need of it that also call the verbs which stand on this package.
const (
	FreshFor = freshFor
	PlanLife = planLife
)

var (
	AllBundles       = (*Work).allBundles
	Document         = (*Work).document
	Fits             = fits
	PassOver         = (*Run).passOver
	PlanTag          = planTag
	PushNode         = (*Run).pushNode
	PutFleet         = (*Publisher).putFleet
	PutFleetDocument = (*Publisher).putFleetDocument
	PutIndex         = (*Run).putIndex
	PutReserved      = (*Run).putReserved
	PutShard         = (*Publisher).putShard
	PutShardManifest = (*Publisher).putShardManifest
	Reserver         = (*Publisher).reserver
	SetDocument      = (*Work).setDocument
	SetLoader        = (*Run).setLoader
	SignNodes        = (*Publisher).signNodes
)

// Statement returns a document of the whole fleet that is to be signed.
func Statement(raw []byte, tags []string, kind, predicate string, life time.Duration) statement {
	return statement{raw, tags, kind, predicate, life}
}

// SetPace has a publisher wait for others in other steps.
func SetPace(p *Publisher, pace reserve.Pace) { p.pace = &pace }

// PushAll writes what is signed.
func PushAll(b *testing.B, p *Publisher, policy published.Policy, x *index.Index, todo []Work) error {
	batch, err := p.Registry.Batch()
	if err != nil {
		b.Fatal(err)
	}
	defer batch.Close() // flushed before
	v := &published.State{Index: index.New(spec.FleetIndex{Fleet: "metal-a"})}
	return (&Run{State: v, Publisher: p, batch: batch, Plan: &Plan{Index: x, Todo: todo}, Result: newResult(x.Root)}).Write(context.Background(), policy)
}
