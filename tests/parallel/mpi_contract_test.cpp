#include "contract.hpp"

#include <gtest/gtest.h>
#include <support/mpi_main.hpp>

namespace maniple {

namespace {

class MpiContract : public testing::TestWithParam<ContractCase> {};

TEST_P(MpiContract, Holds) {
  mpi_test_world().barrier();
  GetParam().run(mpi_test_world());
}

INSTANTIATE_TEST_SUITE_P(parallel, MpiContract, testing::ValuesIn(contract_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace

}  // namespace maniple
