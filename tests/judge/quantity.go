package main

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
)

type quantityCase struct {
	Text  string  `json:"text"`
	Other *string `json:"other"`
}

type quantityAnswer struct {
	Error     string `json:"error,omitempty"`
	Canonical string `json:"canonical,omitempty"`
	Exact     string `json:"exact,omitempty"`
	Sum       string `json:"sum,omitempty"`
	Rest      string `json:"rest,omitempty"`
	Order     *int   `json:"order,omitempty"`
}

// measure reads a quantity and says how it is written; with another one also their sum, difference and order.
func measure(_ context.Context, line []byte) (any, error) {
	var given quantityCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	quantity, err := resource.ParseQuantity(given.Text)
	if err != nil {
		return quantityAnswer{Error: err.Error()}, nil
	}
	copied := quantity.DeepCopy()
	answer := quantityAnswer{Canonical: quantity.String(), Exact: copied.AsDec().String()}
	if given.Other == nil {
		return answer, nil
	}
	other, err := resource.ParseQuantity(*given.Other)
	if err != nil {
		return quantityAnswer{Error: err.Error()}, nil
	}
	order := quantity.Cmp(other)
	sum, rest := quantity.DeepCopy(), quantity.DeepCopy()
	sum.Add(other)
	rest.Sub(other)
	answer.Sum, answer.Rest, answer.Order = sum.String(), rest.String(), &order
	return answer, nil
}
