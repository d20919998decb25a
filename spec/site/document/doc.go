// SPDX-License-Identifier: Apache-2.0

// Package document reads what an operator can hand over: a Site, Divingbell's Helm
// values, an Armada chart, an inventory, in one file or in many.
//
// [Read] recognises each document, gives its keys their one spelling and merges
// them in order into one tree, keeping every value's place; nodes are collected
// beside it. The types here are the documents as they are written, and [Schema]
// makes the JSON Schemas of docs/schema from them and from the table of modules. What a value means is decided
// later: package site puts the parts together. Files come through an [fs.FS]; this
// is the only package below spec/site that opens any.
package document
